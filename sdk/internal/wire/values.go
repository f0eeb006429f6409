package wire

import (
	"fmt"
	"strings"

	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
)

// ToValue encodes an int, float64, bool or string.
func ToValue(v any) (*pb.Value, error) {
	switch v := v.(type) {
	case int:
		return &pb.Value{Kind: &pb.Value_Integer{Integer: int64(v)}}, nil
	case float64:
		return &pb.Value{Kind: &pb.Value_Float{Float: v}}, nil
	case bool:
		return &pb.Value{Kind: &pb.Value_Boolean{Boolean: v}}, nil
	case string:
		return &pb.Value{Kind: &pb.Value_String_{String_: v}}, nil
	}
	return nil, fmt.Errorf("%T cannot be sent: use an int, float64, bool or string", v)
}

// FromValue decodes an int, float64, bool or string.
func FromValue(m *pb.Value) (any, error) {
	switch k := m.GetKind().(type) {
	case *pb.Value_Integer:
		if int64(int(k.Integer)) != k.Integer {
			return nil, fmt.Errorf("the integer %d is too large for this machine", k.Integer)
		}
		return int(k.Integer), nil
	case *pb.Value_Float:
		return k.Float, nil
	case *pb.Value_Boolean:
		return k.Boolean, nil
	case *pb.Value_String_:
		return k.String_, nil
	}
	return nil, fmt.Errorf("the value %w", errAbsent)
}

// ToValues encodes a plugin's settings.
func ToValues(values map[string]any) (map[string]*pb.Value, error) {
	out := make(map[string]*pb.Value, len(values))
	for name, v := range values {
		m, err := ToValue(v)
		if err != nil {
			return nil, fmt.Errorf("parameter %s: %w", name, err)
		}
		out[name] = m
	}
	return out, nil
}

// FromValues decodes a plugin's settings.
func FromValues(values map[string]*pb.Value) (map[string]any, error) {
	out := make(map[string]any, len(values))
	for name, m := range values {
		v, err := FromValue(m)
		if err != nil {
			return nil, fmt.Errorf("parameter %s: %w", name, err)
		}
		out[name] = v
	}
	return out, nil
}

// Names maps the string constants of package sdk to the numbers of an enumeration.
type Names[E ~int32] map[string]E

// Word returns the string for a number. enum names the enumeration in errors.
func (n Names[E]) Word(number E, enum string) (string, error) {
	for word, e := range n {
		if e == number {
			return word, nil
		}
	}
	return "", fmt.Errorf("%s %d is unknown to this version: "+
		"update cage, or rebuild the plugin with a current SDK", enum, number)
}

// Number returns the number for a string. enum names the enumeration in errors.
func (n Names[E]) Number(word, enum string) (E, error) {
	number, ok := n[word]
	if !ok {
		return 0, fmt.Errorf("%s %q cannot be sent", enum, word)
	}
	return number, nil
}

// The enumerations of the protocol.
var (
	SiteRoles      = named[pb.SiteRole]("SITE_ROLE_", pb.SiteRole_value)
	SiteProducts   = named[pb.SiteProduct]("SITE_PRODUCT_", pb.SiteProduct_value)
	TensorRoles    = named[pb.TensorRole]("TENSOR_ROLE_", pb.TensorRole_value)
	NumberFormats  = named[pb.NumberFormat]("NUMBER_FORMAT_", pb.NumberFormat_value)
	ParameterTypes = named[pb.ParameterType]("PARAMETER_TYPE_", pb.ParameterType_value)
	Storages       = Names[pb.Storage]{
		"":         pb.Storage_STORAGE_FLOAT32,
		"int8":     pb.Storage_STORAGE_INT8,
		"uint8":    pb.Storage_STORAGE_UINT8,
		"bfloat16": pb.Storage_STORAGE_BFLOAT16,
	}
)

// named returns the names of an enumeration whose members are called in the .proto files like the
// constants, after a prefix and in capital letters.
func named[E ~int32](prefix string, members map[string]int32) Names[E] {
	names := Names[E]{}
	for member, number := range members {
		if word := strings.TrimPrefix(member, prefix); word != "UNSPECIFIED" {
			names[strings.ToLower(word)] = E(number)
		}
	}
	return names
}
