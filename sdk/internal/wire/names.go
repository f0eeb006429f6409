package wire

import (
	"fmt"
	"strings"

	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
)

// Names maps the string constants of package sdk to the numbers of an enumeration.
type Names[E ~int32] map[string]E

// Word returns the string for a number. enum names the enumeration in errors.
func (n Names[E]) Word(number E, enum string) (string, error) {
	for word, e := range n {
		if e == number {
			return word, nil
		}
	}
	return "", fmt.Errorf("%s %d is unknown to this version: "+
		"update cage, or rebuild the plugin with a current SDK", enum, number)
}

// Number returns the number for a string. enum names the enumeration in errors.
func (n Names[E]) Number(word, enum string) (E, error) {
	number, ok := n[word]
	if !ok {
		return 0, fmt.Errorf("%s %q cannot be sent", enum, word)
	}
	return number, nil
}

// The enumerations of the protocol.
var (
	SiteRoles      = named[pb.SiteRole]("SITE_ROLE_", pb.SiteRole_value)
	SiteProducts   = named[pb.SiteProduct]("SITE_PRODUCT_", pb.SiteProduct_value)
	TensorRoles    = named[pb.TensorRole]("TENSOR_ROLE_", pb.TensorRole_value)
	NumberFormats  = named[pb.NumberFormat]("NUMBER_FORMAT_", pb.NumberFormat_value)
	ParameterTypes = named[pb.ParameterType]("PARAMETER_TYPE_", pb.ParameterType_value)
	Storages       = Names[pb.Storage]{
		"":         pb.Storage_STORAGE_FLOAT32,
		"int8":     pb.Storage_STORAGE_INT8,
		"uint8":    pb.Storage_STORAGE_UINT8,
		"bfloat16": pb.Storage_STORAGE_BFLOAT16,
	}
)

// named returns the names of an enumeration whose members are called in the .proto files like the
// constants, after a prefix and in capital letters.
func named[E ~int32](prefix string, members map[string]int32) Names[E] {
	names := Names[E]{}
	for member, number := range members {
		if word := strings.TrimPrefix(member, prefix); word != "UNSPECIFIED" {
			names[strings.ToLower(word)] = E(number)
		}
	}
	return names
}
