package wire

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that Codec wraps
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
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
