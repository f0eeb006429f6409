package wire

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that Codec wraps
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// Codec is gRPC's protobuf codec, except that it scans a message before decoding it. Use
// a new one for each call: Err keeps the reason why a message could not be read, which
// gRPC reports only as text.
type Codec struct {
	encoding.CodecV2
	Err error
}

// NewCodec returns a codec for one call.
func NewCodec() *Codec { return &Codec{CodecV2: encoding.GetCodecV2("proto")} }

// Unmarshal scans and decodes data into v.
func (c *Codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(proto.Message); ok {
		buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
		c.Err = Scan(buffer.ReadOnlyData(), m.ProtoReflect().Descriptor())
		buffer.Free()
	}
	if c.Err == nil {
		c.Err = c.CodecV2.Unmarshal(data, v)
	}
	return c.Err
}
