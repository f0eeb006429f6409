package export_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/conformance"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
)

var update = flag.Bool("update", false, "write the table of docs/guide/export.md anew")

// targets lists the rows of the table: a quantizer and its settings as in [quantizer.weights],
// without scale_dtype = "f16", which is added if the plugin has that parameter.
var targets = []string{
	`"absmax", granularity="group", group=32`,
	`"absmax", grid="signed", granularity="group", group=32`,
	`"absmax", bits=5, grid="signed", granularity="group", group=32`,
	`"absmax", grid="minimum", granularity="group", group=32`,
	`"absmax", grid="affine", granularity="group", group=32`,
	`"absmax", grid="asymmetric", granularity="group", group=32`,
	`"absmax", bits=8`,
	`"absmax", bits=2`,
	`"absmax", bits=2, grid="full", granularity="group", group=64`,
	`"absmax", bits=1, grid="sign", granularity="group", group=128`,
	`"absmax", grid="centred"`,
	`"lsq"`,
	`"mxfp4"`,
	`"mxfp4", scale_rule="absmax34"`,
	`"nvfp4"`,
	`"nvfp4", scale_form="power_of_two"`,
	`"paretoq", bits=0`,
	`"paretoq", bits=2`,
	`"quest"`,
	`"quest", rotation="none"`,
	`"quest", rotation="none", bits=2`,
	`"quest", rotation="none", form="official"`,
	`"quest", rotation="none", form="ternary"`,
}

// TestTargets checks that the guide's table has the type that each format chooses for a shipped
// quantizer, in a model whose widths are multiples of 256, and that each quantizer can be written
// as a module for PyTorch.
func TestTargets(t *testing.T) {
	testlevel.Long(t, "starts plugins and runs their programs")
	const page, head = "../../../docs/guide/export.md", "| quantizer of weights | " +
		"compressed-tensors | GGUF | MLX |\n|---|---|---|---|\n"
	dev := conformance.NewDevice(testrun.Device(t))
	defer dev.Close()
	var want strings.Builder
	for _, target := range targets {
		var settings map[string]any
		if _, err := toml.Decode("plugin="+strings.ReplaceAll(target, ", ", "\n"),
			&settings); err != nil {
			t.Fatal(err)
		}
		client := started(t, settings["plugin"].(string))
		delete(settings, "plugin")
		if slices.ContainsFunc(client.Description().Parameters,
			func(p sdk.Parameter) bool { return p.Name == "scale_dtype" }) {
			settings["scale_dtype"] = "f16"
		}
		values, err := client.Resolve(settings)
		if err != nil {
			t.Fatal(err)
		}
		m := smallOf(t, architecture.Settings{Kind: architecture.KindLlama, Width: 256, Hidden: 256},
			func(p architecture.Param, x []float32) *export.Quantized {
				q, err := client.Quantize(t.Context(), sdk.Site{Role: sdk.RoleWeight, Name: "w", Shape: p.Dims,
					Layers: 1, Values: values})
				if err != nil {
					t.Fatal(err)
				}
				return quantized(t, dev, q, x, p.Dims)
			})
		fmt.Fprintf(&want, "| `%s` |", target)
		for _, format := range []string{"compressed-tensors", "gguf", "mlx"} {
			stored := "–"
			if r, err := write(t, format, m, export.Options{}); err == nil {
				for _, x := range r.Tensors {
					if x.Quantized {
						stored, _, _ = strings.Cut(x.Type, ",")
					}
				}
			}
			fmt.Fprintf(&want, " %s |", stored)
		}
		want.WriteString("\n")
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), head)
	rows, after, ends := strings.Cut(rest, "\n\n")
	switch {
	case !found || !ends:
		t.Fatalf("%s has no table of quantizers", page)
	case *update:
		if err := os.WriteFile(page, []byte(before+head+want.String()+"\n"+after), 0o644); err != nil {
			t.Fatal(err)
		}
	case want.String() != rows+"\n":
		t.Errorf("%s: the table is not that of the quantizers: run this test with -update\n%s", page,
			want.String())
	}
}
