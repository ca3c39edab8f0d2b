"""An HTTP client with deadlines: the only package that opens sockets.

A caller waits in poll(2) beside whatever else may end its wait; a thread sends the request. Giving
up closes the connection, or first our half of it, so that a grant is still heard.

- `exchange`: a request and its response, limited in time and size
- `messages`: requests and responses
- `worker`: a thread that sends requests, and can be abandoned
- `transport`: send a request over a connection of our own
- `http1`: HTTP/1.1 on a socket
- `proxied`: send a request through an HTTP proxy, with httpx
- `tls`: TLS contexts and certificates
- `settings`: a client's settings, and the files they name; no secrets
- `no_answer`: map network errors to one error
"""
