package wire

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that Codec wraps
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Codec is gRPC's protobuf codec, except that unknown fields are errors. Use a new one for each
// call: Err keeps the reason why a message could not be read, which gRPC reports only as text.
type Codec struct {
	encoding.CodecV2
	Err error
}

// NewCodec returns a codec for one call.
func NewCodec() *Codec { return &Codec{CodecV2: encoding.GetCodecV2("proto")} }

// Unmarshal decodes data into v.
func (c *Codec) Unmarshal(data mem.BufferSlice, v any) error {
	c.Err = c.CodecV2.Unmarshal(data, v)
	if m, ok := v.(proto.Message); ok && c.Err == nil {
		c.Err = CheckKnown(m.ProtoReflect())
	}
	return c.Err
}

// CheckKnown returns an error if a message or a part of it has a field that this version does not
// know, which could mean something that would silently be ignored.
func CheckKnown(m protoreflect.Message) (err error) {
	if unknown := m.GetUnknown(); len(unknown) > 0 {
		return fmt.Errorf("%s has a field that this version does not know", m.Descriptor().Name())
	}
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsMap():
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				err = CheckKnown(v.Message()) // the values of all maps are messages
				return err == nil
			})
		case field.Message() == nil:
		case field.IsList():
			for i := range v.List().Len() {
				if err = CheckKnown(v.List().Get(i).Message()); err != nil {
					break
				}
			}
		default:
			err = CheckKnown(v.Message())
		}
		return err == nil
	})
	return err
}
