package microscaling_test

import (
	"testing"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// apply runs f on a tensor in binary64 and in binary32 and returns both results.
func apply(t testing.TB, x reference.Tensor, f func(v program.Value) program.Value) [2]reference.Tensor {
	t.Helper()
	b := program.NewBuilder("test")
	b.Output("y", f(b.Input("x", x.Type)))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	var out [2]reference.Tensor
	for i, run := range []func(*program.Program, map[string]reference.Tensor) (map[string]reference.Tensor, error){reference.Run, reference.Run32} {
		results, err := run(p, map[string]reference.Tensor{"x": x})
		if err != nil {
			t.Fatal(err)
		}
		out[i] = results["y"]
	}
	return out
}

var precisions = [2]string{"binary64", "binary32"}
