package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A message of 64 MiB can ask a decoder for many gigabytes: an empty node takes
// two bytes on the wire and a hundred in memory. These bounds are far above what
// any program within the default limits of the validator needs.
const (
	maxParts    = 1 << 18 // submessages and strings
	maxElements = 1 << 23 // numbers in lists
)

// Scan walks an encoded message before it is decoded. It refuses broken
// encodings, fields that the description does not know (they could mean
// something that would silently be ignored) and messages whose decoded form would
// be out of proportion to their length. It allocates nothing.
func Scan(data []byte, d protoreflect.MessageDescriptor) error {
	s := scanner{parts: maxParts, elements: maxElements}
	return s.message(data, d)
}

type scanner struct{ parts, elements int }

func (s *scanner) message(b []byte, d protoreflect.MessageDescriptor) error {
	for len(b) > 0 {
		number, wireType, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%s: broken encoding", d.Name())
		}
		b = b[n:]
		field := d.Fields().ByNumber(number)
		if field == nil || !fits(field, wireType) {
			return fmt.Errorf("%s has field %d (wire type %d), which this version does not know", d.Name(), number, wireType)
		}
		n = protowire.ConsumeFieldValue(number, wireType, b)
		if n < 0 {
			return fmt.Errorf("%s.%s: broken encoding", d.Name(), field.Name())
		}
		if err := s.field(b[:n], field, wireType); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// field accounts for one value of a field and descends into submessages.
func (s *scanner) field(value []byte, field protoreflect.FieldDescriptor, t protowire.Type) error {
	if t != protowire.BytesType {
		s.elements--
		return s.check(field)
	}
	content, _ := protowire.ConsumeBytes(value)
	switch field.Kind() {
	case protoreflect.MessageKind:
		s.parts--
		if err := s.check(field); err != nil {
			return err
		}
		return s.message(content, field.Message())
	case protoreflect.StringKind, protoreflect.BytesKind:
		s.parts--
	case protoreflect.DoubleKind:
		s.elements -= len(content) / 8
	default: // packed varints: each ends with a byte below 0x80
		for _, c := range content {
			if c < 0x80 {
				s.elements--
			}
		}
	}
	return s.check(field)
}

func (s *scanner) check(field protoreflect.FieldDescriptor) error {
	if s.parts < 0 {
		return fmt.Errorf("the message has more than %d parts (at %s)", maxParts, field.FullName())
	}
	if s.elements < 0 {
		return fmt.Errorf("the message has more than %d numbers (at %s)", maxElements, field.FullName())
	}
	return nil
}

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
