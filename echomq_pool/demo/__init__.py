# SPDX-License-Identifier: MIT
"""`make demo`: a pool at work on real jobs, and a worker killed in the middle."""
