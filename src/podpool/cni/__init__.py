"""The plugin that a container runtime starts, and what it says to the agent.

The plugin itself is `shim.c`: it carries the environment and stdin to the agent and prints the answer. Everything that
CNI means is in the agent.
"""
