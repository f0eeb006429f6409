package sdk

import (
	"cmp"
	"fmt"

	"github.com/cage-qat/cage/sdk/internal/wire"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
)

// This file encodes descriptions and decodes sites and tensors; package client does the reverse.

func describeResponse(d Description, capabilities ...string) (*pb.DescribeResponse, error) {
	m := &pb.Description{Name: d.Name, Version: d.Version, Doc: d.Doc, Capabilities: capabilities}
	for _, p := range d.Parameters {
		kind, err := wire.ParameterTypes.Number(string(p.Type), "type")
		if err != nil {
			return nil, failure(fmt.Errorf("parameter %s: %w", p.Name, err))
		}
		def, err := wire.ToValue(p.Default)
		if err != nil {
			return nil, failure(fmt.Errorf("parameter %s: default: %w", p.Name, err))
		}
		m.Parameters = append(m.Parameters, &pb.Parameter{Name: p.Name, Type: kind, Default: def,
			Min: p.Min, Max: p.Max, Choices: p.Choices, Doc: p.Doc})
	}
	for _, c := range d.Claims {
		claim := &pb.Claim{Name: string(c.Name)}
		var err error
		if c.Value != nil {
			claim.Value, err = wire.ToValue(c.Value)
		}
		if err == nil {
			claim.When, err = wire.ToValues(c.When)
		}
		if err != nil {
			return nil, failure(fmt.Errorf("claim %s: %w", c.Name, err))
		}
		m.Claims = append(m.Claims, claim)
	}
	return &pb.DescribeResponse{ApiVersion: wire.APIVersion, Description: m}, nil
}

func fromSite(m *pb.Site) (Site, error) {
	role, noRole := wire.SiteRoles.Word(m.GetRole(), "role")
	product, noProduct := wire.SiteProducts.Word(m.GetProduct(), "product")
	shape, noShape := wire.FromShape(m.GetShape())
	values, noValues := wire.FromValues(m.GetValues())
	if err := cmp.Or(noRole, noProduct, noShape, noValues); err != nil {
		return Site{}, fmt.Errorf("site %s: %w", m.GetName(), err)
	}
	layer := -1
	if m.Layer != nil {
		layer = int(m.GetLayer())
	}
	return Site{Role: Role(role), Product: Product(product), Name: m.GetName(), Shape: shape,
		Layer: layer, Layers: int(m.GetLayers()), Heads: int(m.GetHeads()),
		RowHeads: int(m.GetRowHeads()), Context: int(m.GetContext()), Values: Values{values}}, nil
}

func fromTensor(m *pb.Tensor) (Tensor, error) {
	role, noRole := wire.TensorRoles.Word(m.GetRole(), "role")
	shape, noShape := wire.FromShape(m.GetShape())
	values, noValues := wire.FromValues(m.GetValues())
	err := cmp.Or(noRole, noShape, noValues)
	var parts []Part
	if err == nil {
		parts, err = fromParts(m.GetParts(), shape)
	}
	if err != nil {
		return Tensor{}, fmt.Errorf("tensor %s: %w", m.GetName(), err)
	}
	return Tensor{Name: m.GetName(), Role: TensorRole(role), Shape: shape, Parts: parts,
		Values: Values{values}}, nil
}

// fromParts reads the parts of a fused tensor, which must together cover all of its rows.
func fromParts(list []*pb.Part, shape []int) (out []Part, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	rows := uint64(0)
	for _, p := range list {
		out = append(out, Part{Name: p.GetName(), First: int(rows), Rows: int(p.GetRows())})
		rows += uint64(p.GetRows())
		if p.GetRows() == 0 || len(shape) == 0 || rows > uint64(shape[0]) {
			return nil, fmt.Errorf("part %s has %d rows, which do not fit a tensor of shape %v",
				p.GetName(), p.GetRows(), shape)
		}
	}
	if rows != uint64(shape[0]) {
		return nil, fmt.Errorf("the parts have %d rows in total, want %d", rows, shape[0])
	}
	return out, nil
}
