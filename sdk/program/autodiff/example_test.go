package autodiff_test

import (
	"fmt"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
)

func ExampleVJP() {
	b := program.NewBuilder("half.square")
	x := b.Input("x", program.FloatType(3))
	b.Output("loss", x.Square().ReduceSum(0).Scale(0.5))
	p, _ := b.Build()
	d, err := autodiff.VJP(p, "loss", "x")
	if err != nil {
		fmt.Println(err)
		return
	}
	out, _ := reference.Run(d, map[string]reference.Tensor{
		"x": reference.Floats([]float64{1, 2, 3}, 3), "d.loss": reference.Float(1),
	})
	fmt.Println(out["d.x"])
	// Output: float[3] [1 2 3]
}

func ExampleSplit() {
	b := program.NewBuilder("clipped")
	x := b.Input("x", program.FloatType(2))
	inside := x.Abs().Le(b.Const(1))
	b.Output("value", x.Clip(-1, 1).Scale(4).Round().Scale(0.25))
	b.Output("surrogate", inside.Select(x, b.Const(0)))
	p, _ := b.Build()
	s, err := autodiff.Split(p, []string{"value"}, "surrogate", "x")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range s.Residuals {
		fmt.Println("kept:", r.Name, r.Type)
	}
	fmt.Print(s.Backward)
	// Output:
	// kept: r.0 bool[2]
	// program clipped.backward(%0 r.0: bool[2], %1 d.surrogate: float[2]) {
	//   %2 = constant 0 : float
	//   %3 = select %0 %1 %2 : float[2]
	//   return d.x=%3
	// }
}
