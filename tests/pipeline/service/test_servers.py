"""Addresses of a data service, and timeouts for its workers."""

import pytest

from xtts.pipeline.service.servers import AddressError, Patience, host_and_port


def test_a_slow_service_is_given_more_time():
    """The timeout is four times the longest wait so far, between the minimum and that of the first batch."""
    patience = Patience(first=300.0)
    assert patience.at_least(10.0, longest=1.0) == 10.0
    assert patience.at_least(10.0, longest=20.0) == 80.0
    assert patience.at_least(10.0, longest=3600.0) == 300.0


@pytest.mark.parametrize(
    ("target", "expected"), [("grpc://10.0.0.5:5000", ("10.0.0.5", 5000)), ("grpc://[::1]:80", ("::1", 80))]
)
def test_an_address_has_a_host_and_a_port(target, expected):
    """IPv6 addresses are in brackets."""
    assert host_and_port(target, "data.service") == expected


@pytest.mark.parametrize("target", ["10.0.0.5:5000", "grpc://here", "grpc://here:0", "grpc://here:65536", "tcp://a:1"])
def test_an_invalid_address_is_refused(target):
    """The error names the setting and shows how to write an address."""
    with pytest.raises(AddressError, match=r"data\.service: .* is not an address; write grpc://HOST:PORT"):
        host_and_port(target, "data.service")
