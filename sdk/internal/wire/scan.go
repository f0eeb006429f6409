package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A message of 64 MiB can ask a decoder for many gigabytes: an empty node takes two bytes on the
// wire and a hundred in memory. A submessage or a string costs partCost, and a number in a list 1.
// The bound is far above what any program within the default limits of the validator needs.
const (
	maxCost  = 1 << 23
	partCost = 1 << 5
)

// Scan walks an encoded message before it is decoded. It refuses broken encodings, fields that the
// description does not know (they could mean something that would silently be ignored) and messages
// whose decoded form would be out of proportion to their length. It allocates nothing.
func Scan(data []byte, d protoreflect.MessageDescriptor) error {
	left := maxCost
	return scan(data, d, &left)
}

func scan(b []byte, d protoreflect.MessageDescriptor, left *int) error {
	for len(b) > 0 {
		number, wireType, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%s: broken encoding", d.Name())
		}
		b = b[n:]
		field := d.Fields().ByNumber(number)
		if field == nil || !fits(field, wireType) {
			return fmt.Errorf("%s has field %d (wire type %d), which this version does not know",
				d.Name(), number, wireType)
		}
		n = protowire.ConsumeFieldValue(number, wireType, b)
		if n < 0 {
			return fmt.Errorf("%s.%s: broken encoding", d.Name(), field.Name())
		}
		cost, content := 1, []byte(nil)
		if wireType == protowire.BytesType {
			content, _ = protowire.ConsumeBytes(b[:n])
			switch field.Kind() {
			case protoreflect.MessageKind, protoreflect.StringKind, protoreflect.BytesKind:
				cost = partCost
			case protoreflect.DoubleKind:
				cost = len(content) / 8
			default: // packed varints: each ends with a byte below 0x80
				cost = 0
				for _, c := range content {
					if c < 0x80 {
						cost++
					}
				}
			}
		}
		if *left -= cost; *left < 0 {
			return fmt.Errorf("the message has too many parts or numbers (at %s)", field.FullName())
		}
		if field.Kind() == protoreflect.MessageKind {
			if err := scan(content, field.Message(), left); err != nil {
				return err
			}
		}
		b = b[n:]
	}
	return nil
}

// fits reports whether a field can be encoded with a wire type.
func fits(field protoreflect.FieldDescriptor, t protowire.Type) bool {
	var scalar protowire.Type
	switch field.Kind() {
	case protoreflect.MessageKind, protoreflect.StringKind, protoreflect.BytesKind:
		return t == protowire.BytesType
	case protoreflect.DoubleKind:
		scalar = protowire.Fixed64Type
	case protoreflect.FloatKind, protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind:
		scalar = protowire.Fixed32Type
	default:
		scalar = protowire.VarintType
	}
	return t == scalar || field.IsList() && t == protowire.BytesType
}
