// Command kmeans quantizes each group of a weight's row to a codebook of its own, the best one:
// k-means in one dimension has an exact solution, by dynamic programming over the sorted entries,
// which no program can be. So a search finds the codebooks, in the plugin's own process, every so
// many steps; what the training computes with them, the nearest entry, is a program.
//
// It is the non-uniform quantization of SqueezeLLM (Kim et al. 2023, 2306.07629) without its
// weights of sensitivity, and exact where theirs is Lloyd's iteration. (Dynamic programming: Wang &
// Song 2011, "Ckmeans.1d.dp"; divide and conquer: Grønlund et al. 2017, 1701.07204.)
package main

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

type kmeans struct{}

var (
	_ sdk.Quantizer = kmeans{}
	_ sdk.Searcher  = kmeans{}
)

func (kmeans) Describe() sdk.Description {
	return sdk.Description{
		Name:    "kmeans",
		Version: "1.0.0",
		Doc: "A codebook for each group of a row, by exact k-means (SqueezeLLM without " +
			"sensitivities), searched by the plugin itself; for weights.",
		Parameters: []sdk.Parameter{
			sdk.Int("bits", 4, 1, 6, "bits of a code"),
			sdk.Int("group", 0, 0, 1<<20,
				"consecutive entries of a row that share a codebook; 0: the whole row"),
			sdk.Int("every", 100, 1, 1<<30, "steps after which codebooks are searched again"),
		},
		Claims: []sdk.Claim{
			{Name: sdk.ClaimAnyZeroCode},
			{Name: sdk.ClaimScaleScope, Value: sdk.ScopeBlock},
		},
	}
}

// codebook is the name of the state: for each group, its levels in increasing order.
const codebook = "codebook"

// SearchState declares a codebook for each group.
func (kmeans) SearchState(site sdk.Site) ([]sdk.StateTensor, int, error) {
	shape := slices.Clone(site.Shape)
	shape[len(shape)-1] = (site.RowLen() + group(site) - 1) / group(site)
	return []sdk.StateTensor{{Name: codebook, Shape: append(shape, levels(site))}}, site.Int("every"),
		nil
}

func levels(site sdk.Site) int { return 1 << site.Int("bits") }

// group is the number of entries that share a codebook.
func group(site sdk.Site) int {
	if n := site.Int("group"); n > 0 {
		return min(n, site.RowLen())
	}
	return site.RowLen()
}

// Quantize takes the nearest level for each entry; between two of them the lower one.
func (kmeans) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	if site.Role != sdk.RoleWeight || site.Product != sdk.ProductForward {
		return sdk.Quantized{}, sdk.Refuse("kmeans searches for weights in the forward product only: "+
			"choose another quantizer for %s in the product %s", site.Role, site.Product)
	}
	groups := microscaling.NewBlocks(site.Shape, group(site))
	v, table := groups.Split(x), site.State[codebook]
	value, code := v.Scale(0).Add(table.Column(0)), v.Scale(0)
	for k := 1; k < levels(site); k++ {
		above := v.Gt(table.Column(k - 1).Add(table.Column(k)).Scale(0.5))
		value = above.Select(table.Column(k).Broadcast(v.Shape(), nil), value)
		code = above.Select(b.Const(float64(k)), code)
	}
	finite := x.IsFinite()
	return sdk.Quantized{
		Value:     finite.Select(groups.Join(value), b.Const(math.NaN())),
		Surrogate: finite.Select(x, b.Const(0)),
		Codes:     finite.Select(groups.Join(code), b.Const(0)).Convert(program.Int),
		Mask:      finite,
	}, nil
}

// Search finds the codebooks of a weight.
func (kmeans) Search(in sdk.SearchInput, site sdk.Site) error {
	row, size, k := site.RowLen(), group(site), levels(site)
	tables := in.Next[codebook]
	s := newSolver(size, k)
	for first := 0; first < len(in.X); first += row {
		for from := 0; from < row; from += size {
			s.solve(in.X[first+from:first+min(from+size, row)], tables[:k])
			tables = tables[k:]
		}
	}
	return nil
}

func main() { sdk.ServeQuantizer(kmeans{}) }
