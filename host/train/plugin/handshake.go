package plugin

import (
	"crypto/x509"
	"encoding/base64"
	"net/netip"
	"strconv"
	"strings"

	goplugin "github.com/hashicorp/go-plugin"

	"github.com/cage-qat/cage/sdk/client"
)

// checkHandshake verifies the line by which a plugin says where it listens:
//
//	CORE|PROTOCOL|NETWORK|ADDRESS|grpc|CERTIFICATE
//
// and returns it in exactly this form for go-plugin, which does not check it. The
// certificate may be absent.
func checkHandshake(line string) (checked string, certified bool, err *Error) {
	parts, err := splitHandshake(line)
	if err != nil {
		return "", false, err
	}
	if len(parts) > 5 && parts[5] != "" {
		if err := checkCertificate(parts[5]); err != nil {
			return "", false, err
		}
		return strings.Join(parts[:6], "|"), true, nil
	}
	return strings.Join(parts[:5], "|"), false, nil
}

// splitHandshake returns the fields of the line, of which the first five are right.
func splitHandshake(line string) ([]string, *Error) {
	parts := strings.Split(strings.TrimSpace(line), "|")
	if len(parts) < 4 {
		return nil, failure(ErrProtocol, "printed %q instead of the handshake; is it a cage plugin? A plugin must not print to standard output before it serves", clip(line, 200))
	}
	if parts[0] != strconv.Itoa(goplugin.CoreProtocolVersion) {
		return nil, failure(ErrVersion, "speaks version %.20q of the go-plugin handshake, this host speaks %d: rebuild the plugin with a current SDK", parts[0], goplugin.CoreProtocolVersion)
	}
	if err := checkProtocol(parts[1]); err != nil {
		return nil, err
	}
	if err := checkAddress(parts[2], parts[3]); err != nil {
		return nil, err
	}
	if len(parts) < 5 || parts[4] != string(goplugin.ProtocolGRPC) {
		return nil, failure(ErrProtocol, "does not offer grpc; its handshake is %q", clip(line, 200))
	}
	return parts, nil
}

// longestCertificate is the length in characters of the longest certificate that is
// accepted; go-plugin's have about 700.
const longestCertificate = 16 << 10

// checkCertificate verifies that a field is a certificate, DER in base64.
func checkCertificate(text string) *Error {
	if len(text) > longestCertificate {
		return failure(ErrProtocol, "offers a certificate of %d characters; at most %d are accepted", len(text), longestCertificate)
	}
	der, err := base64.RawStdEncoding.DecodeString(text)
	if err == nil {
		_, err = x509.ParseCertificate(der)
	}
	if err != nil {
		return failure(ErrProtocol, "offers a TLS certificate that cannot be read: %w", err)
	}
	return nil
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
