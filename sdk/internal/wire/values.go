package wire

import (
	"fmt"

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
