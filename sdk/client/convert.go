package client

import (
	"errors"
	"fmt"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/internal/wire"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/program"
)

// The host's half of the conversions: sites and tensors to the wire, programs
// from it.

func toSite(s sdk.Site) (*pb.Site, error) {
	role, ok := wire.SiteRoles.Number(string(s.Role))
	if !ok {
		return nil, fmt.Errorf("site %s: role %q cannot be sent", s.Name, s.Role)
	}
	shape, values, err := toShapeAndValues(s.Shape, s.Values)
	if err != nil {
		return nil, fmt.Errorf("site %s: %w", s.Name, err)
	}
	return &pb.Site{Role: role, Name: s.Name, Shape: shape, Values: values}, nil
}

func toTensor(t sdk.Tensor) (*pb.Tensor, error) {
	role, ok := wire.TensorRoles.Number(string(t.Role))
	if !ok {
		return nil, fmt.Errorf("tensor %s: role %q cannot be sent", t.Name, t.Role)
	}
	shape, values, err := toShapeAndValues(t.Shape, t.Values)
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	return &pb.Tensor{Role: role, Name: t.Name, Shape: shape, Values: values}, nil
}

func toShapeAndValues(shape []int, values sdk.Values) ([]uint32, map[string]*pb.Value, error) {
	dims, err := wire.ToShape(shape)
	if err != nil {
		return nil, nil, err
	}
	m, err := wire.ToValues(values.Map())
	return dims, m, err
}

func fromQuantizerProgram(m *pb.QuantizerProgram, limits program.Limits) (sdk.QuantizerProgram, error) {
	if m == nil {
		return sdk.QuantizerProgram{}, errors.New("there is no answer")
	}
	p, err := validProgram(m.GetProgram(), limits)
	return sdk.QuantizerProgram{Program: p, Homogeneous: m.GetHomogeneous()}, err
}

func fromOptimizerProgram(m *pb.OptimizerProgram, limits program.Limits) (out sdk.OptimizerProgram, err error) {
	if m == nil {
		return out, errors.New("there is no answer")
	}
	if m.GetInit() != nil {
		if out.Init, err = validProgram(m.GetInit(), limits); err != nil {
			return out, fmt.Errorf("init: %w", err)
		}
	}
	if out.Update, err = validProgram(m.GetUpdate(), limits); err != nil {
		return out, fmt.Errorf("update: %w", err)
	}
	for i, s := range m.GetState() {
		shape, err := wire.FromShape(s.GetShape())
		if err != nil {
			return out, fmt.Errorf("state tensor %d: %w", i, err)
		}
		out.State = append(out.State, sdk.StateTensor{Name: s.GetName(), Shape: shape})
	}
	return out, nil
}

func validProgram(m *pb.Program, limits program.Limits) (*program.Program, error) {
	p, err := wire.FromProgram(m)
	if err != nil {
		return nil, err
	}
	return p, p.Validate(limits)
}
