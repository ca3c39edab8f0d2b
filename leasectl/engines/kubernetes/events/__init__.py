"""The events of pools in Kubernetes: written to the state directory and posted to the cluster.

Posting is asynchronous and may fail or be forbidden; nothing waits for it.

- `event_facts`: the events of each step of an acquisition
- `events`: record and post the events of steps and of requests, once they are done
- `own_record`: record events in the state directory
- `posts`: what is posted about a step, and for which Leases
- `post_objects`: build and parse ``events.k8s.io/v1`` objects
- `posting`: post events in the background
- `log`: read events of the cluster and of this machine, each once
- `watch`: follow new events
"""
