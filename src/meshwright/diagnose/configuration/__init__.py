"""What a job was told: launch commands, arguments and configuration files, and the arithmetic that they must satisfy.

`names` gives every framework's word for a quantity one name; `lines`, `command`, `notes` and `documents` read;
`settings` joins what belongs to one job; `refusals` reads the numbers out of assertions; the other files are rules.
"""
