"""The movers that are compared: ours, and measuring sticks beside it.

The sticks are written as a careful person would write them with that library, and no slower. They
know the good case only: a return or a nack ends them with an error and the letter still in its source. They
change nothing on the letters, where the courier adds its headers and takes the `x-death` family off.
"""
