package cage_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

