"""Makes every artefact of a release from binaries: pure functions from bytes to bytes wherever possible.

`scripts/dist` is the command. The same binaries give the same artefacts, byte for byte.
"""
