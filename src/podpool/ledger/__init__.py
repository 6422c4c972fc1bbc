"""The subnet authority: who holds which address.

Other rooms import `ledger.client`, `ledger.messages` and `ledger.errors` alone, which need neither store nor service.
"""
