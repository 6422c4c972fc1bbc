"""The subnet authority: which network container holds which address.

Other packages import only `client`, `messages`, `admin_messages` and `errors`, which need neither storage nor service.
"""
