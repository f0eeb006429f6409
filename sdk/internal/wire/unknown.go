package wire

import (
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Message is a message of the protocol.
type Message = protoreflect.ProtoMessage

// CheckKnown fails if a message, or one nested in it, has a field that its descriptor lacks. The
// meaning of such a field would be ignored silently.
func CheckKnown(m protoreflect.Message) (err error) {
	if len(m.GetUnknown()) > 0 {
		return fmt.Errorf("%s has a field that this version does not know", m.Descriptor().Name())
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				err = CheckKnown(v.Message())
				return err == nil
			})
		case f.IsMap() || f.Message() == nil: // no messages
		case f.IsList():
			for i := 0; i < v.List().Len() && err == nil; i++ {
				err = CheckKnown(v.List().Get(i).Message())
			}
		default:
			err = CheckKnown(v.Message())
		}
		return err == nil
	})
	return err
}
