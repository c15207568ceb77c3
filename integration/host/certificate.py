"""A certificate for configs of tests: what is written to a trust store is checked, so it has to be a real one."""

from __future__ import annotations

# Of nobody: its key was thrown away when it was made.
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBiTCCAS+gAwIBAgIUV2fYOwIfjEeRCt+aECCuAO2srmAwCgYIKoZIzj0EAwIw
GTEXMBUGA1UEAwwObm9kZWFnZW50IGRlbW8wIBcNMjYxMTIxMTIwMjUyWhgPMjEy
NjEwMjgxMjAyNTJaMBkxFzAVBgNVBAMMDm5vZGVhZ2VudCBkZW1vMFkwEwYHKoZI
zj0CAQYIKoZIzj0DAQcDQgAE4vk0WRcuB9K7Z70VqcQNrjky+pmc6SDRUtEtJ34c
B9U8i/3D1KwoOPXPPNWyBJyBOd/7zNtqHXMRwub8LCTBVKNTMFEwHQYDVR0OBBYE
FGosT+IuDfdJXBB7jZ4Nl3NA1b80MB8GA1UdIwQYMBaAFGosT+IuDfdJXBB7jZ4N
l3NA1b80MA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIhAK+hcPkg
G5hObSf67UJDPdoQVCEvkTKC/REddQzOL7WNAiBQISK7WGNN7ysDBkAUp4X/Iv+q
Be757JsopTtBMwBZqg==
-----END CERTIFICATE-----
"""
