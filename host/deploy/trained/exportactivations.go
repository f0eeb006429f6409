package trained

import (
	"fmt"

	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/train/step"
)

// activations lists the quantized inputs of layers, with their quantizers for a step.Piece of
// tokens: one site for each program, as the layers of a model have the same ones.
func (t *Model) activations() ([]export.Activation, error) {
	var list []export.Activation
	at := map[string]int{} // places in the list by the program's hash
	for _, site := range t.built.Compiled.Plan().Model.ActivationSites(1, step.Piece) {
		p, ok := t.built.Programs.Pieces[step.Piece][site.Name]
		if !ok {
			continue
		}
		if len(p.Trained) > 0 {
			return nil, fmt.Errorf("%s: its quantizer has trained parameters, and programs that load an export have none for activations", site.Name)
		}
		hash := p.Program.Hash()
		i, have := at[hash]
		if !have {
			i, at[hash] = len(list), len(list)
			list = append(list, export.Activation{Name: site.Name, Width: site.Width, Rows: site.Tokens,
				Quantize: func(x []float32) ([]float32, error) { return t.built.Compiled.QuantizedActivation(site, x) }})
		}
		list[i].Feeds = append(list[i].Feeds, site.Feeds...)
	}
	return list, nil
}
