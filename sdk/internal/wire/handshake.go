package wire

import (
	"context"
	"fmt"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that Codec wraps
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Plugin adapts one kind of plugin to go-plugin. The plugin's process sets Register, the host
// NewClient.
type Plugin struct {
	goplugin.NetRPCUnsupportedPlugin
	Register  func(*grpc.Server)
	NewClient func(grpc.ClientConnInterface) any
}

// GRPCServer implements [goplugin.GRPCPlugin].
func (p Plugin) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	p.Register(s)
	return nil
}

// GRPCClient implements [goplugin.GRPCPlugin].
func (p Plugin) GRPCClient(
	_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn,
) (any, error) {
	return p.NewClient(conn), nil
}

// Constants that both sides must agree on to communicate; docs/reference/plugin-protocol.md
// explains each.
const (
	// ProtocolVersion counts changes that make messages unreadable for the other side. It is
	// exchanged in the handshake.
	ProtocolVersion = 1
	// APIVersion counts changes in the meaning of messages, such as new
	// operations. It is negotiated by Describe.
	APIVersion = 1

	// CookieKey and CookieValue are the name and value of the environment variable that tells a
	// plugin that a host started it. The value is not a secret.
	CookieKey   = "CAGE_PLUGIN"
	CookieValue = "5a1f8d0c2b7e4e36a9c3d471f06be928"

	// ParentPipeKey set to ParentPipeStdin means that standard input is a pipe that
	// the host holds open as long as it lives.
	ParentPipeKey   = "CAGE_PLUGIN_LIFELINE"
	ParentPipeStdin = "stdin"

	// LogKey is the environment variable with the lowest level that the plugin should
	// log: trace, debug, info, warn or error.
	LogKey = "CAGE_PLUGIN_LOG"

	// The capabilities of a host that opaque optimizers and Searchers require.
	OpaqueCapability = "opaque"
	SearchCapability = "search"

	// MaxMessage is the largest message that either side accepts, in bytes. It
	// leaves room for the largest constants that a program may hold.
	MaxMessage = 64 << 20
)

// Codec is gRPC's protobuf codec, except that it refuses unknown fields. Use a new one for each
// call: Err keeps the reason why a message could not be read, which gRPC reports only as text.
type Codec struct {
	encoding.CodecV2
	Err error
}

// NewCodec returns a codec for one call.
func NewCodec() *Codec { return &Codec{CodecV2: encoding.GetCodecV2("proto")} }

// Unmarshal decodes data into v with [Decode].
func (c *Codec) Unmarshal(data mem.BufferSlice, v any) error {
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	c.Err = Decode(buffer.ReadOnlyData(), v.(proto.Message))
	return c.Err
}

// Decode decodes a message. An unknown field, in the message or a part of it, is an error: it could
// have a meaning that must not be ignored.
func Decode(data []byte, m proto.Message) error {
	if err := proto.Unmarshal(data, m); err != nil {
		return fmt.Errorf("%s: broken encoding: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return checkKnown(m.ProtoReflect())
}

func checkKnown(m protoreflect.Message) (err error) {
	if unknown := m.GetUnknown(); len(unknown) > 0 {
		number, wireType, _ := protowire.ConsumeTag(unknown)
		return fmt.Errorf("%s has field %d (wire type %d), which this version does not know",
			m.Descriptor().Name(), number, wireType)
	}
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsMap():
			if field.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					err = checkKnown(v.Message())
					return err == nil
				})
			}
		case field.Message() == nil:
		case field.IsList():
			for i := 0; i < v.List().Len() && err == nil; i++ {
				err = checkKnown(v.List().Get(i).Message())
			}
		default:
			err = checkKnown(v.Message())
		}
		return err == nil
	})
	return err
}
