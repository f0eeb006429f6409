package layerwise

import (
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model"
)

// names lists sites in words.
func names(sites []model.ActivationSite) string {
	var list []string
	for _, s := range sites {
		list = append(list, s.Name)
	}
	return strings.Join(list, ", ")
}

// indexes are the places of sites in a list of all of a block.
func indexes(all, sites []model.ActivationSite) (list []int) {
	for _, s := range sites {
		list = append(list, slices.IndexFunc(all, func(a model.ActivationSite) bool { return a.Name == s.Name }))
	}
	return list
}

func toFloat64(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

func toFloat32(x []float64) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
	}
	return out
}
