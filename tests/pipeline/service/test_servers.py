"""Addresses of a service, and how long its workers are waited for."""

import pytest

from xtts.pipeline.service.servers import AddressError, Patience, host_and_port


def test_a_slow_service_is_given_more_time():
    """Four times the longest wait so far, at most as long as the first batch has, and never less than the minimum."""
    patience = Patience(first=300.0)
    assert patience.at_least(10.0, longest=1.0) == 10.0
    assert patience.at_least(10.0, longest=20.0) == 80.0
    assert patience.at_least(10.0, longest=3600.0) == 300.0


@pytest.mark.parametrize(
    ("target", "expected"), [("grpc://10.0.0.5:5000", ("10.0.0.5", 5000)), ("grpc://[::1]:80", ("::1", 80))]
)
def test_an_address_has_a_host_and_a_port(target, expected):
    """IPv6 addresses stand in brackets."""
    assert host_and_port(target, "data.service") == expected


@pytest.mark.parametrize("target", ["10.0.0.5:5000", "grpc://here", "grpc://here:0", "grpc://here:65536", "tcp://a:1"])
def test_what_is_not_an_address_is_refused(target):
    """With the setting that it was written in, and how an address is written."""
    with pytest.raises(AddressError, match=r"data\.service: .* is not an address; write grpc://HOST:PORT"):
        host_and_port(target, "data.service")
