package client

import (
	"errors"
	"fmt"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/internal/wire"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
)

// Info is what a plugin says about itself.
type Info struct {
	// Description has passed its Check.
	sdk.Description
	// APIVersion is the version that both sides will speak.
	APIVersion int
}

// Bounds on descriptions, so that a person can read them.
const (
	maxVersion    = 100
	maxDoc        = 4096
	maxParameters = 256
	maxChoices    = 256
	maxLine       = 1024
)

func fromDescribe(m *pb.DescribeResponse) (Info, error) {
	switch v := m.GetApiVersion(); {
	case v == 0:
		return Info{}, fmt.Errorf("%w: Describe names no API version", ErrAnswer)
	case v > APIVersion:
		return Info{}, fmt.Errorf("%w: the plugin speaks API version %d, this host %d: update cage", ErrVersion, v, APIVersion)
	case v < APIVersion:
		return Info{}, fmt.Errorf("%w: the plugin speaks API version %d, this host %d: rebuild the plugin with a current SDK", ErrVersion, v, APIVersion)
	}
	if c := m.GetDescription().GetCapabilities(); len(c) > 0 {
		return Info{}, fmt.Errorf("%w: the plugin needs %.100q, which this host does not have: update cage", ErrVersion, c[0])
	}
	d, err := fromDescription(m.GetDescription())
	if err == nil {
		err = d.Check()
	}
	if err != nil {
		return Info{}, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return Info{Description: d, APIVersion: int(m.GetApiVersion())}, nil
}

func fromDescription(m *pb.Description) (sdk.Description, error) {
	if m == nil {
		return sdk.Description{}, errors.New("the description is absent")
	}
	d := sdk.Description{Name: m.GetName(), Version: m.GetVersion(), Doc: m.GetDoc()}
	if err := errors.Join(atMost("version", len(d.Version), maxVersion), atMost("doc", len(d.Doc), maxDoc),
		atMost("list of parameters", len(m.GetParameters()), maxParameters)); err != nil {
		return d, err
	}
	for i, p := range m.GetParameters() {
		parameter, err := fromParameter(p)
		if err != nil {
			return d, fmt.Errorf("parameter %d (%.60q): %w", i, p.GetName(), err)
		}
		d.Parameters = append(d.Parameters, parameter)
	}
	return d, nil
}

func fromParameter(m *pb.Parameter) (sdk.Parameter, error) {
	p := sdk.Parameter{Name: m.GetName(), Min: m.GetMin(), Max: m.GetMax(), Choices: m.GetChoices(), Doc: m.GetDoc()}
	word, ok := wire.ParameterTypes.Word(m.GetType())
	if !ok {
		return p, fmt.Errorf("type %d does not exist", m.GetType())
	}
	p.Type = sdk.Type(word)
	if err := errors.Join(atMost("doc", len(p.Doc), maxLine), atMost("list of choices", len(p.Choices), maxChoices)); err != nil {
		return p, err
	}
	for _, c := range p.Choices {
		if err := atMost("choice", len(c), maxLine); err != nil {
			return p, err
		}
	}
	def, err := wire.FromValue(m.GetDefault())
	if err != nil {
		return p, fmt.Errorf("default: %w", err)
	}
	p.Default = def
	return p, nil
}

func atMost(what string, length, most int) error {
	if length > most {
		return fmt.Errorf("the %s is longer than %d", what, most)
	}
	return nil
}
