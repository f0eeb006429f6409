package plugintest
import (
	"testing"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)
func CPU() Machine { m := Oracle(); m.Name = "cpu"; m.Double=false
m.Run = func(t testing.TB, p *program.Program, inputs map[string]reference.Tensor) map[string]reference.Tensor {
		outputs, err := reference.Run32(p, inputs)
		if err != nil {
			t.Fatal(err)
		}
		return outputs
	}
return m }
