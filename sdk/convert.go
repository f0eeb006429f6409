package sdk

import (
	"errors"
	"fmt"

	"github.com/cage-qat/cage/sdk/internal/wire"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
)

// The plugin's half of the conversions: descriptions and programs to the wire,
// sites and tensors from it. The host's half is package client.

func describeResponse(d Description) (*pb.DescribeResponse, error) {
	m := &pb.Description{Name: d.Name, Version: d.Version, Doc: d.Doc}
	for _, p := range d.Parameters {
		parameter, err := toParameter(p)
		if err != nil {
			return nil, refusal(fmt.Errorf("parameter %s: %w", p.Name, err))
		}
		m.Parameters = append(m.Parameters, parameter)
	}
	return &pb.DescribeResponse{ApiVersion: wire.APIVersion, Description: m}, nil
}

func toParameter(p Parameter) (*pb.Parameter, error) {
	kind, ok := wire.ParameterTypes.Number(string(p.Type))
	if !ok {
		return nil, fmt.Errorf("type %q does not exist", p.Type)
	}
	def, err := wire.ToValue(p.Default)
	if err != nil {
		return nil, fmt.Errorf("default: %w", err)
	}
	return &pb.Parameter{Name: p.Name, Type: kind, Default: def, Min: p.Min, Max: p.Max, Choices: p.Choices, Doc: p.Doc}, nil
}

func fromSite(m *pb.Site) (Site, error) {
	if m == nil {
		return Site{}, errors.New("the request has no site")
	}
	role, ok := wire.SiteRoles.Word(m.GetRole())
	if !ok {
		return Site{}, fmt.Errorf("site %s: role %d is unknown to this plugin's SDK: rebuild the plugin with a current one", m.GetName(), m.GetRole())
	}
	shape, values, err := fromShapeAndValues(m.GetShape(), m.GetValues())
	if err != nil {
		return Site{}, fmt.Errorf("site %s: %w", m.GetName(), err)
	}
	return Site{Role: Role(role), Name: m.GetName(), Shape: shape, Values: values}, nil
}

func fromTensor(m *pb.Tensor) (Tensor, error) {
	if m == nil {
		return Tensor{}, errors.New("the request has no tensor")
	}
	role, ok := wire.TensorRoles.Word(m.GetRole())
	if !ok {
		return Tensor{}, fmt.Errorf("tensor %s: role %d is unknown to this plugin's SDK: rebuild the plugin with a current one", m.GetName(), m.GetRole())
	}
	shape, values, err := fromShapeAndValues(m.GetShape(), m.GetValues())
	if err != nil {
		return Tensor{}, fmt.Errorf("tensor %s: %w", m.GetName(), err)
	}
	return Tensor{Name: m.GetName(), Role: TensorRole(role), Shape: shape, Values: values}, nil
}

func fromShapeAndValues(shape []uint32, values map[string]*pb.Value) ([]int, Values, error) {
	dims, err := wire.FromShape(shape)
	if err != nil {
		return nil, Values{}, err
	}
	m, err := wire.FromValues(values)
	return dims, Values{m}, err
}

func toOptimizerProgram(o OptimizerProgram) (*pb.OptimizerProgram, error) {
	m := &pb.OptimizerProgram{Init: wire.ToProgram(o.Init), Update: wire.ToProgram(o.Update)}
	for _, s := range o.State {
		shape, err := wire.ToShape(s.Shape)
		if err != nil {
			return nil, fmt.Errorf("state %s: %w", s.Name, err)
		}
		m.State = append(m.State, &pb.StateTensor{Name: s.Name, Shape: shape})
	}
	return m, nil
}
