package client

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/internal/wire"
	"google.golang.org/protobuf/proto"

	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// This file encodes sites and tensors and decodes answers; package sdk does the reverse.

func toSite(s sdk.Site) (*pb.Site, error) {
	role, noRole := wire.SiteRoles.Number(string(s.Role), "role")
	product, noProduct := wire.SiteProducts.Number(
		string(cmp.Or(s.Product, sdk.ProductForward)), "product")
	shape, noShape := wire.ToShape(s.Shape)
	values, noValues := wire.ToValues(s.Values.Map())
	if err := cmp.Or(noRole, noProduct, noShape, noValues); err != nil {
		return nil, fmt.Errorf("site %s: %w", s.Name, err)
	}
	out := &pb.Site{Role: role, Product: product, Name: s.Name, Shape: shape, Values: values,
		Layers: uint32(max(0, s.Layers)), Heads: uint32(s.Heads), RowHeads: uint32(s.RowHeads),
		Context: uint32(s.Context)}
	if s.Layer >= 0 {
		out.Layer = new(uint32(s.Layer))
	}
	return out, nil
}

func toTensor(t sdk.Tensor) (*pb.Tensor, error) {
	role, noRole := wire.TensorRoles.Number(string(t.Role), "role")
	shape, noShape := wire.ToShape(t.Shape)
	values, noValues := wire.ToValues(t.Values.Map())
	if err := cmp.Or(noRole, noShape, noValues); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	m := &pb.Tensor{Role: role, Name: t.Name, Shape: shape, Values: values}
	for _, p := range t.Parts {
		m.Parts = append(m.Parts, &pb.Part{Name: p.Name, Rows: uint32(p.Rows)})
	}
	return m, nil
}

func fromQuantizeResponse(r *pb.QuantizeResponse, limits program.Limits) (spec.Quantizer, error) {
	if r.GetProgram() == nil {
		return spec.Quantizer{}, errNoAnswer
	}
	return wire.FromQuantizer(r.GetProgram(), limits)
}

func fromProgramResponse(
	r *pb.ProgramResponse, limits program.Limits,
) (out spec.Optimizer, err error) {
	switch {
	case r.GetDeclined() != nil:
		return out, nil
	case r.GetOpaque() != nil:
		out.Accepts, out.Opaque = true, true
		if out.State, err = wire.FromTensors(r.GetOpaque().GetState(), limits); err != nil {
			return out, fmt.Errorf("state tensors: %w", err)
		}
		return out, nil
	case r.GetProgram() == nil:
		return out, errNoAnswer
	}
	return wire.FromOptimizer(r.GetProgram(), limits)
}

var errNoAnswer = errors.New("there is no answer")

// maxDescription bounds the size of a description, in bytes.
const maxDescription = 1 << 20

func fromDescribe(m *pb.DescribeResponse) (out sdk.Description, err error) {
	d := m.GetDescription()
	switch v := m.GetApiVersion(); {
	case v == 0:
		return out, fmt.Errorf("%w: Describe returned no API version", ErrAnswer)
	case v != APIVersion:
		return out, fmt.Errorf("%w: the plugin has API version %d, this host %d: "+
			"update cage, or rebuild the plugin with a current SDK", ErrVersion, v, APIVersion)
	case d == nil:
		return out, fmt.Errorf("%w: the description is missing", ErrAnswer)
	case proto.Size(d) > maxDescription:
		return out, fmt.Errorf("%w: the description has more than %d bytes", ErrAnswer, maxDescription)
	}
	for _, c := range d.GetCapabilities() {
		if c != wire.OpaqueCapability && c != wire.SearchCapability {
			return out, fmt.Errorf("%w: the plugin needs %.100q, which this host does not support: "+
				"update cage", ErrVersion, c)
		}
	}
	out = sdk.Description{Name: d.GetName(), Version: d.GetVersion(), Doc: d.GetDoc()}
	for i, p := range d.GetParameters() {
		kind, noKind := wire.ParameterTypes.Word(p.GetType(), "type")
		def, noDefault := wire.FromValue(p.GetDefault())
		if noDefault != nil {
			noDefault = fmt.Errorf("default: %w", noDefault)
		}
		if err := cmp.Or(noKind, noDefault); err != nil {
			return sdk.Description{}, fmt.Errorf("%w: parameter %d (%.60q): %w",
				ErrAnswer, i, p.GetName(), err)
		}
		out.Parameters = append(out.Parameters, sdk.Parameter{Name: p.GetName(), Type: sdk.Type(kind),
			Default: def, Min: p.GetMin(), Max: p.GetMax(), Choices: p.GetChoices(), Doc: p.GetDoc()})
	}
	for i, c := range d.GetClaims() {
		claim := sdk.Claim{Name: sdk.ClaimName(c.GetName())}
		if c.GetValue() != nil {
			claim.Value, err = wire.FromValue(c.GetValue())
		}
		if err == nil {
			claim.When, err = wire.FromValues(c.GetWhen())
		}
		if err != nil {
			return sdk.Description{}, fmt.Errorf("%w: claim %d (%.60q): %w", ErrAnswer, i, c.GetName(), err)
		}
		out.Claims = append(out.Claims, claim)
	}
	if err := out.Check(); err != nil {
		return sdk.Description{}, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return out, nil
}
