package plugin

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/sdk/client"
	goplugin "github.com/hashicorp/go-plugin"
)

// checkHandshake verifies the line by which a plugin says where it listens:
//
//	CORE|PROTOCOL|NETWORK|ADDRESS|grpc
//
// and returns it in exactly this form for go-plugin, which trusts it more than a
// line from a stranger deserves: a sixth field, a certificate, makes it panic when
// TLS is off.
func checkHandshake(line string) (string, *Error) {
	parts := strings.Split(strings.TrimSpace(line), "|")
	if len(parts) < 4 {
		return "", failure(ErrProtocol, "printed %q instead of the handshake; is it a cage plugin? A plugin must not print to standard output before it serves", clip(line, 200))
	}
	if parts[0] != strconv.Itoa(goplugin.CoreProtocolVersion) {
		return "", failure(ErrVersion, "speaks version %.20q of the go-plugin handshake, this host speaks %d: rebuild the plugin with a current SDK", parts[0], goplugin.CoreProtocolVersion)
	}
	if err := checkProtocol(parts[1]); err != nil {
		return "", err
	}
	if err := checkAddress(parts[2], parts[3]); err != nil {
		return "", err
	}
	if len(parts) < 5 || parts[4] != string(goplugin.ProtocolGRPC) {
		return "", failure(ErrProtocol, "does not offer grpc; its handshake is %q", clip(line, 200))
	}
	if len(parts) > 5 && parts[5] != "" {
		return "", failure(ErrProtocol, "offers a TLS certificate, which this host did not ask for")
	}
	return strings.Join(parts[:5], "|"), nil
}

func checkProtocol(text string) *Error {
	version, err := strconv.Atoi(text)
	switch {
	case err != nil:
		return failure(ErrProtocol, "gives the protocol version %.20q, which is not a number", text)
	case version > client.ProtocolVersion:
		return failure(ErrVersion, "speaks version %d of the plugin protocol, this host speaks %d: update cage", version, client.ProtocolVersion)
	case version < client.ProtocolVersion:
		return failure(ErrVersion, "speaks version %d of the plugin protocol, this host speaks %d: rebuild the plugin with a current SDK", version, client.ProtocolVersion)
	}
	return nil
}

// checkAddress accepts Unix sockets and, for languages whose gRPC lacks these,
// TCP on this machine.
func checkAddress(network, address string) *Error {
	switch network {
	case "unix":
		if address != "" {
			return nil
		}
	case "tcp":
		if a, err := netip.ParseAddrPort(address); err == nil && a.Addr().IsLoopback() {
			return nil
		}
	}
	return failure(ErrProtocol, "listens on %.20q %.100q: must be a unix socket or tcp on 127.0.0.1", network, address)
}
