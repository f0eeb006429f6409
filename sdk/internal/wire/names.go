package wire

import (
	"fmt"

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
	SiteRoles = Names[pb.SiteRole]{
		"weight":     pb.SiteRole_SITE_ROLE_WEIGHT,
		"activation": pb.SiteRole_SITE_ROLE_ACTIVATION,
		"gradient":   pb.SiteRole_SITE_ROLE_GRADIENT,
		"key":        pb.SiteRole_SITE_ROLE_KEY,
		"value":      pb.SiteRole_SITE_ROLE_VALUE,
		"query":      pb.SiteRole_SITE_ROLE_QUERY,
	}
	SiteProducts = Names[pb.SiteProduct]{
		"forward":         pb.SiteProduct_SITE_PRODUCT_FORWARD,
		"input_gradient":  pb.SiteProduct_SITE_PRODUCT_INPUT_GRADIENT,
		"weight_gradient": pb.SiteProduct_SITE_PRODUCT_WEIGHT_GRADIENT,
	}
	TensorRoles = Names[pb.TensorRole]{
		"matrix":    pb.TensorRole_TENSOR_ROLE_MATRIX,
		"vector":    pb.TensorRole_TENSOR_ROLE_VECTOR,
		"embedding": pb.TensorRole_TENSOR_ROLE_EMBEDDING,
		"head":      pb.TensorRole_TENSOR_ROLE_HEAD,
	}
	Storages = Names[pb.Storage]{
		"":         pb.Storage_STORAGE_FLOAT32,
		"int8":     pb.Storage_STORAGE_INT8,
		"uint8":    pb.Storage_STORAGE_UINT8,
		"bfloat16": pb.Storage_STORAGE_BFLOAT16,
	}
	NumberFormats = Names[pb.NumberFormat]{
		"integer": pb.NumberFormat_NUMBER_FORMAT_INTEGER,
		"e2m1":    pb.NumberFormat_NUMBER_FORMAT_E2M1,
	}
	ParameterTypes = Names[pb.ParameterType]{
		"integer": pb.ParameterType_PARAMETER_TYPE_INTEGER,
		"float":   pb.ParameterType_PARAMETER_TYPE_FLOAT,
		"boolean": pb.ParameterType_PARAMETER_TYPE_BOOLEAN,
		"string":  pb.ParameterType_PARAMETER_TYPE_STRING,
	}
)
