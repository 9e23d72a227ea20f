"""What a job left behind, read: nothing here imports torch.

`inputs` recognises files, `recorder` reads the Flight Recorder's dumps, `diagnosis` joins what the rules find. `traces`
reads Kineto's traces: what a rank computed, what it sent, and what of that was hidden.
"""
