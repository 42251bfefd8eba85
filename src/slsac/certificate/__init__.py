"""A certificate of tail risk: what a number of episodes shows of a trained policy, and how surely.

``contents`` says what a certificate holds. ``certify`` plays the episodes and puts it together from
``statements`` (what the costs show, and the verdict) and ``calibration`` (whether the cost critic
is right). ``text`` and ``page`` show it; ``files`` writes it.
"""

from slsac.certificate.certify import certify
from slsac.certificate.files import base_of, require_writable, write
from slsac.certificate.text import plain_text

__all__ = ["base_of", "certify", "plain_text", "require_writable", "write"]
