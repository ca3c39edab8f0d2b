"""The machine: clocks, processes, signals, and ways to wait.

A waiter sleeps in one poll(2) until a deadline or a descriptor wakes it.

- `clock`: clocks that count suspended time; deadlines
- `due_times`: find what is due next without looking at all
- `poll`: the poll(2) in which every waiter sleeps
- `wakeup`: a descriptor by which a thread ends a sleep
- `file_watch`: a descriptor that tells when a file is removed, moved or replaced
- `process`: identify processes, and tell whether they live
- `process_watch`: descriptors that tell when processes end
- `namespaces`: whether another pid namespace of this kernel still lives
- `callers`: the processes whose end ends a wait; what the parent passed on, restored for commands
- `signals`: signals as descriptors, so that none strikes between a commit and its record
- `lock_wait`: wait for a file lock
- `threads`: start threads, and report their errors
- `request_threads`: requests to servers, one thread for each server
- `background`: start a process that goes on in the background
- `program`: run a program for its output, limited in time and size
- `own_files`: open files under names that others may have planted
- `afterwards`: work for which no caller waits
- `backoff`: pauses between retries
"""
