"""What PyTorch's watchdog and its checks print of a hang, and what follows from the numbers in it, without any dump.

`read` takes the lines, `groups` puts them together by process group, `desync` proves who left the common order,
`alone` judges a timeout that has no such proof, `agreement` reads monitored barriers and fingerprints.
"""
