package build

import (
	"strings"

	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/sdk"
)

func roleOfSite(kind model.SiteKind) (role sdk.Role, configured string) {
	switch kind {
	case model.KindKey:
		return sdk.RoleKey, config.RoleKeys
	case model.KindValue:
		return sdk.RoleValue, config.RoleValues
	case model.KindQuery:
		return sdk.RoleQuery, config.RoleQueries
	case model.KindHead:
		return sdk.RoleActivation, config.RoleHead
	}
	return sdk.RoleActivation, config.RoleActivations
}

func roleOfWeight(p architecture.Param) string {
	if p.Role == architecture.RoleMatrix {
		return config.RoleWeights
	}
	return config.RoleHead // tied to the embedding
}

// headsOfWeight returns the numbers of attention heads along the columns and along the rows of a
// weight. A number is 0 if the axis is not divided into heads.
func (c *collector) headsOfWeight(name string) (columns, rows int) {
	m := c.Config.Model
	switch {
	case strings.HasSuffix(name, "attn.qkv"):
		return 0, m.Heads + 2*m.KVHeads
	case strings.HasSuffix(name, "attn.out"):
		return m.Heads, 0
	}
	return 0, 0
}
