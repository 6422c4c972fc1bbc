"""The CNI plugin: its protocol with the agent, its build and its installation.

The plugin is `shim.c`: it sends the environment and stdin to the agent and prints the response. All CNI logic is in the
agent.
"""
