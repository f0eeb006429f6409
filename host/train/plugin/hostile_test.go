package plugin

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"
)

// These plugins do not use the SDK: they answer with messages written out here in
// protobuf's text form, or with statuses.

const describesItself = `api_version: 1 description { name: "hostile" }`

// written returns a quantizer's answer for a site of shape [4] with these nodes, in text form.
func written(nodes, value string) string {
	return `program { program { name: "p" inputs { name: "x" type { dtype: DTYPE_FLOAT shape: 4 } } ` +
		nodes +
		` outputs { name: "value" value: ` + value + ` } outputs { name: "surrogate" value: 0 } } }`
}

// hostileAnswers lists answers to Quantize, in the order in which a plugin gives them, and the
// errors that the host must report.
var hostileAnswers = []struct {
	name, quantize string
	kind           error
	says           string
}{
	{"ill-typed", written(`nodes { op: OP_ROUND args: 0 type { dtype: DTYPE_INT shape: 4 } }`, "1"),
		ErrProtocol, "states the type int[4], but its operands imply float[4]"},
	{"forward-reference", written(`nodes { op: OP_NEG args: 1 type { dtype: DTYPE_FLOAT shape: 4 } }`,
		"1"), ErrProtocol, "not defined before it is used"},
	{"unknown-op", written(`nodes { op: 999 args: 0 type { dtype: DTYPE_FLOAT shape: 4 } }`, "1"),
		ErrProtocol, "operation 999 does not exist"},
	{"op-too-large", written(`nodes { op: 65546 args: 0 type { dtype: DTYPE_FLOAT shape: 4 } }`, "1"),
		ErrProtocol, "operation 65546 does not exist"},
	{"no-type", written(`nodes { op: OP_NEG args: 0 }`, "1"), ErrProtocol, "the type is absent"},
	{"negative", written(`nodes { op: OP_NEG args: 4294967295 type { dtype: DTYPE_FLOAT shape: 4 } }`,
		"1"), ErrProtocol, "operand is 4294967295"},
	{"too-large", written(`nodes { op: OP_CONSTANT type { dtype: DTYPE_FLOAT shape: 1073741824 } attr { floats: 0 } }
		nodes { op: OP_REDUCE_SUM args: 1 type { dtype: DTYPE_FLOAT } attr { axes: 0 } } nodes { op: OP_ADD args: 0 args: 2 type { dtype: DTYPE_FLOAT shape: 4 } }`, "3"),
		ErrProtocol, "1073741824 elements"},
	{"linalg", written(`nodes { op: OP_RESHAPE args: 0 type { dtype: DTYPE_FLOAT shape: [2, 2] } } nodes { op: OP_QR args: 1 type { dtype: DTYPE_FLOAT shape: [2, 2] } }
		nodes { op: OP_RESHAPE args: 2 type { dtype: DTYPE_FLOAT shape: 4 } }`, "3"), ErrProtocol, "refresh programs only"},
	{"many-nodes", written(
		strings.Repeat(`nodes { op: OP_NEG args: 0 type { dtype: DTYPE_FLOAT shape: 4 } } `, 5000), "1"),
		ErrProtocol, "want at most 4096"},
	{"wrong-shape", written(
		`nodes { op: OP_RESHAPE args: 0 type { dtype: DTYPE_FLOAT shape: [2, 2] } }`, "1"), ErrProtocol,
		"want the type of x"},
	{"no-answer", ``, ErrProtocol, "there is no answer"},
	{"no-program", `program { homogeneous: true }`, ErrProtocol, "the program is absent"},
	{"unknown-field", "!unknown", ErrProtocol, "does not know"},
	{"refuses", "!refuses", ErrRefused, "use rows of 8"},
	{"raises", "!raises", ErrFailed, "KeyError: 'bits'"},
	{"wrong-status", "!wrong-status", ErrFailed, "use rows of 8"},
	{"huge-message", "!huge", ErrProtocol, "a message is too large"},
	{"broken", "!broken", ErrProtocol, "broken encoding"},
}

// goodAnswer is a valid answer, which rounds.
var goodAnswer = written(`nodes { op: OP_ROUND args: 0 type { dtype: DTYPE_FLOAT shape: 4 } }`, "1")

// hostileDescriptions lists answers to Describe, and the errors that the host must report.
var hostileDescriptions = map[string]struct {
	describe string
	kind     error
	says     string
}{
	"new-api": {`api_version: 2 description { name: "hostile" }`, ErrVersion, "update cage"},
	"no-api":  {`description { name: "hostile" }`, ErrProtocol, "returned no API version"},
	"capability": {`api_version: 1 description { name: "hostile" capabilities: "telepathy" }`,
		ErrVersion, `needs "telepathy"`},
	"no-name":     {`api_version: 1 description { }`, ErrProtocol, "plugin name"},
	"bad-default": {`api_version: 1 description { name: "h" parameters { name: "bits" type: PARAMETER_TYPE_INTEGER default { integer: 9 } min: 2 max: 8 } }`, ErrProtocol, "default: got 9"},
	"no-default":  {`api_version: 1 description { name: "h" parameters { name: "bits" type: PARAMETER_TYPE_INTEGER } }`, ErrProtocol, "the value is absent"},
}

func init() {
	behaviours["answers"] = func() {
		given := 0
		serveAnswers(describesItself, func() string {
			if given++; given <= len(hostileAnswers) {
				return hostileAnswers[given-1].quantize
			}
			return goodAnswer
		})
	}
	for name, d := range hostileDescriptions {
		behaviours["answers-"+name] = func() {
			serveAnswers(d.describe, func() string { return goodAnswer })
		}
	}
	behaviours["plain-grpc"] = plainGRPC
	behaviours["certifies-and-is-plain"] = func() { serveWithout(printed(newCertificate())) }
	behaviours["certifies-another"] = func() {
		serveWithout(printed(newCertificate()),
			grpc.Creds(credentials.NewServerTLSFromCert(newCertificate())))
	}
	behaviours["serves-nothing"] = func() { serveServices() }
}

// newCertificate returns a certificate like those that go-plugin makes.
func newCertificate() *tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"},
		IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// printed returns a certificate as it is written in the handshake.
func printed(c *tls.Certificate) string {
	return base64.RawStdEncoding.EncodeToString(c.Certificate[0])
}

func serveAnswers(describe string, quantize func() string) {
	serveServices(service("cage.plugin.v1.Quantizer", map[string]func() (any, error){
		"Describe": func() (any, error) { return message("cage.plugin.v1.DescribeResponse", describe) },
		"Quantize": func() (any, error) { return message("cage.plugin.v1.QuantizeResponse", quantize()) },
	}))
}

// message parses a message in text form, or makes a message or error that has no text form.
func message(name protoreflect.FullName, text string) (proto.Message, error) {
	t, err := protoregistry.GlobalTypes.FindMessageByName(name)
	if err != nil {
		return nil, err
	}
	m := t.New()
	switch text {
	case "!unknown":
		m.SetUnknown([]byte{15 << 3, 1}) // field 15, a varint
	case "!broken":
		m.SetUnknown([]byte{1<<3 | 2, 100}) // field 1, 100 bytes that are not there
	case "!refuses": // a status without details, as other languages send it
		err = status.Error(codes.InvalidArgument, "use rows of 8")
	case "!raises":
		err = status.Error(codes.Unknown, "Exception calling application: KeyError: 'bits'")
	case "!wrong-status":
		err = status.Error(codes.FailedPrecondition, "use rows of 8")
	case "!huge":
		m.SetUnknown(append([]byte{15<<3 | 2, 0x80, 0x80, 0x80, 0x28}, make([]byte, 80<<20)...))
	default:
		err = prototext.Unmarshal([]byte(text), m.Interface())
	}
	return m.Interface(), err
}

// service describes a service whose methods ignore their requests.
func service(name string, methods map[string]func() (any, error)) *grpc.ServiceDesc {
	d := &grpc.ServiceDesc{ServiceName: name, HandlerType: (*any)(nil)}
	for method, f := range methods {
		d.Methods = append(d.Methods,
			grpc.MethodDesc{MethodName: method,
				Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (
					any, error) {
					if err := decode(new(emptypb.Empty)); err != nil {
						return nil, err
					}
					return f()
				}})
	}
	return d
}

type services struct {
	goplugin.NetRPCUnsupportedPlugin
	list []*grpc.ServiceDesc
}

func (s *services) GRPCServer(_ *goplugin.GRPCBroker, server *grpc.Server) error {
	for _, d := range s.list {
		server.RegisterService(d, s)
	}
	return nil
}

func (s *services) GRPCClient(
	context.Context, *goplugin.GRPCBroker, *grpc.ClientConn,
) (any, error) {
	return nil, status.Error(codes.Unimplemented, "")
}

func serveServices(list ...*grpc.ServiceDesc) {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: goplugin.HandshakeConfig{MagicCookieKey: "CAGE_PLUGIN",
			MagicCookieValue: os.Getenv("CAGE_PLUGIN")},
		VersionedPlugins: map[int]goplugin.PluginSet{2: {"x": &services{list: list}}},
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(opts...)
		},
	})
}

// plainGRPC is a plugin as written in another language, following
// docs/reference/plugin-protocol.md: gRPC over TCP and a printed line, without go-plugin.
func plainGRPC() { serveWithout("") }

// serveWithout serves without go-plugin, and prints a certificate if there is one.
func serveWithout(certificate string, options ...grpc.ServerOption) {
	server := grpc.NewServer(options...)
	healthy := health.NewServer()
	healthy.SetServingStatus("plugin", grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(server, healthy)
	server.RegisterService(service("cage.plugin.v1.Quantizer", map[string]func() (any, error){
		"Describe": func() (any, error) {
			return message("cage.plugin.v1.DescribeResponse", describesItself)
		},
		"Quantize": func() (any, error) {
			return message("cage.plugin.v1.QuantizeResponse", goodAnswer)
		},
	}), nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Printf("1|2|tcp|%s|grpc|%s\n", l.Addr(), certificate)
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1)) // returns when the host has ended or closes it
		os.Exit(0)
	}()
	if err := server.Serve(l); err != nil {
		panic(err)
	}
}
