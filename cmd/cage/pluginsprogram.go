package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// programFlags describes the tensor for which programs are requested.
type programFlags struct {
	shape    string
	role     string
	sets     []string
	backward bool
	context  int
}

// siteNames maps each role to an example site name.
var siteNames = map[sdk.Role]string{
	sdk.RoleWeight: "layers.0.attn.qkv", sdk.RoleActivation: "layers.0.attn.qkv.input",
	sdk.RoleGradient: "layers.0.attn.qkv", sdk.RoleKey: "layers.0.attn.keys",
	sdk.RoleValue: "layers.0.attn.values", sdk.RoleQuery: "layers.0.attn.queries",
}

// siteOf returns an example site, whose rows are one sequence if it is not a weight.
func siteOf(role sdk.Role, shape []int, values sdk.Values) sdk.Site {
	site := sdk.Site{Role: role, Name: siteNames[role], Layers: 1, Shape: shape, Values: values}
	if role != sdk.RoleWeight {
		site.Context = shape[0]
	}
	if slices.Contains([]sdk.Role{sdk.RoleKey, sdk.RoleValue, sdk.RoleQuery}, role) {
		site.Heads = 1
	}
	return site
}

// maxElements limits the size of the tensors for which programs are requested.
const maxElements = 1 << 31

type programPart struct {
	Name    string `json:"name"`
	Kernel  string `json:"kernel,omitempty"` // see becomes; empty for an optimizer
	Program string `json:"program,omitempty"`
}

func newPluginsProgram() *cobra.Command {
	p := &programFlags{}
	cmd := &cobra.Command{
		Use:   "program NAME",
		Short: "Show the programs that a plugin writes",
		Long: `Show the programs that a plugin writes for one tensor. For a quantizer, also show which
part of each program becomes one GPU kernel.

  cage plugins program ./my-quantizer --shape 32x384 --set bits=3 --backward`,
		Args: exactly(1, "the name or path of one plugin"),
	}
	flags := cmd.Flags()
	flags.StringVar(&p.shape, "shape", "32x384", "`SHAPE` of the tensor, rows first")
	flags.StringVar(&p.role, "role", string(sdk.RoleWeight),
		"`ROLE` of the site of a quantizer: weight, activation, gradient, key, value or query")
	flags.IntVar(&p.context, "context", 0,
		"rows of an activation, key, value or query that are one sequence; 0: all")
	flags.StringArrayVar(&p.sets, "set", nil,
		"set a parameter of the plugin: `KEY=VALUE` (repeatable)")
	flags.BoolVar(&p.backward, "backward", false, "also show the backward pass of a quantizer")
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (out *output, err error) {
		if siteNames[sdk.Role(p.role)] == "" {
			return nil, usagef("--role %q: want weight, activation, gradient, key, value or query", p.role)
		}
		shape, err := parseShape(p.shape)
		if err != nil {
			return nil, err
		}
		err = startAsEach(cmd, args[0], kinds, false, func(client *plugin.Client) error {
			values, err := pluginValues(client, p.sets)
			if err != nil {
				return err
			}
			next, err := p.describe(cmd.Context(), client, values, shape)
			switch first := out; {
			case first == nil:
				out = next
			case next != nil: // the plugin is of both kinds
				out = &output{slices.Concat(first.value.([]programPart), next.value.([]programPart)),
					func(w io.Writer) {
						first.text(w)
						next.text(w)
					}}
			}
			return err
		})
		return out, err
	})
}

// parseShape parses a shape such as 32x384.
func parseShape(text string) (shape []int, err error) {
	size := 1
	for number := range strings.SplitSeq(text, "x") {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || size > maxElements/n {
			return nil, usagef("--shape %q: want a shape such as 32x384, with at most %d elements",
				text, maxElements)
		}
		shape, size = append(shape, n), size*n
	}
	return shape, nil
}

// describe returns the programs that a plugin with the given values of its parameters writes for a
// tensor of the given shape.
func (p *programFlags) describe(
	ctx context.Context, client *plugin.Client, values sdk.Values, shape []int,
) (*output, error) {
	var list []programPart
	add := func(name string, program *program.Program, kernel string) {
		list = append(list, programPart{name, kernel, program.String()})
	}
	if client.Kind() == sdk.KindQuantizer {
		site := siteOf(sdk.Role(p.role), shape, values)
		if site.Context > 0 {
			site.Context = cmp.Or(p.context, shape[0])
			if site.Context < 1 || shape[0]%site.Context != 0 {
				return nil, usagef("--context %d: want a divisor of the %d rows", p.context, shape[0])
			}
		}
		q, err := client.Quantize(ctx, site)
		if err != nil {
			return nil, err
		}
		rows := int(program.FloatType(shape...).Size()) / shape[len(shape)-1]
		for name, program := range q.Programs() {
			add(name, program, becomes(program, rows))
		}
		passes, err := q.Split()
		if err != nil {
			return nil, err
		}
		list = append(list, programPart{Name: "forward", Kernel: becomes(passes.Forward, rows)})
		if len(passes.Backward.Nodes) > 0 {
			part := programPart{Name: "backward", Kernel: becomes(passes.Backward, rows)}
			if p.backward {
				part.Program = passes.Backward.String()
			}
			list = append(list, part)
		}
	} else {
		optimizer, err := client.Program(ctx, sdk.Tensor{
			Name: siteNames[sdk.RoleWeight], Role: sdk.TensorMatrix, Shape: shape, Values: values})
		if err != nil {
			return nil, err
		}
		if !optimizer.Accepts {
			return nil, fmt.Errorf("%s does not accept a matrix of shape %v",
				client.Description().Name, shape)
		}
		for name, program := range optimizer.Programs() {
			add(name, program, "") // updates are compiled differently
		}
	}
	return &output{list, func(w io.Writer) {
		rows := [][]string{{"program", "becomes"}}
		for _, part := range list {
			fmt.Fprint(w, part.Program)
			rows = append(rows, []string{part.Name, part.Kernel})
		}
		if client.Kind() == sdk.KindQuantizer {
			table(w, rows)
		}
	}}, nil
}

// becomes describes which part of a quantizer's program is compiled to a single GPU kernel. The
// rest is computed operation by operation.
func becomes(p *program.Program, rows int) string {
	const whole = "operations, because each needs the whole tensor"
	d, err := triton.Divide(p, rows)
	if err == nil && d.Rows == nil {
		return whole
	}
	if err == nil {
		_, err = triton.New(d.Rows, rows, triton.LargestRow, nil)
	}
	refusal, ok := errors.AsType[*passes.Refusal](err)
	switch {
	case ok && refusal.Node == "":
		return "operations, because " + refusal.Reason
	case ok:
		return fmt.Sprintf("operations, because of %s: %s", refusal.Node, refusal.Reason)
	case err != nil:
		return "operations: " + err.Error()
	case d.Whole == nil:
		return "one kernel"
	case len(d.Whole.Outputs) == 1:
		return "one kernel, and operations for one scalar"
	}
	return fmt.Sprintf("one kernel, and operations for %d scalars", len(d.Whole.Outputs))
}
