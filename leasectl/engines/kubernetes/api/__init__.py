"""A request to the API server of a cluster, as whoever the environment says that we are.

A URL says which namespace (`address`). Which cluster, and as whom, is chosen once (`choice`): by
the address, by a variable of ours, by the pod that we are in, or as kubectl would. A handle records
the choice, which names files and holds no secret. Of what is `found` in them (`kubeconfig` merges
them, `entries` checks each) and of the `credentials` that programs print which they name
(`plugins`) the `login` makes the `access` that a request needs, and makes it anew when they change.

`requests` has a method for each thing that is done with a `collection` of objects; `asking` does
it, within a deadline, and again where that is safe, by what has become of its `tries`; what a
server says instead is in `refusals`, and whether it is `letting_in` whoever comes so.
What happens to objects tells a watch (`watching`). `opening` puts all that together; who we are for
a server, and what we may, is our `standing`, and what we have to, the `rights`.
"""
