package budget

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/capstan-io/capstan/internal/machinery/text"
)

const (
	// mostExponent is the largest power of ten of a quantity, and its inverse the smallest: quantities are written out when they are parsed
	// and compared, which takes seconds with an exponent of millions.
	mostExponent = 100
	// mostQuantityBytes is how long a quantity may be. The largest and most precise one that there is has 28 digits.
	mostQuantityBytes = 64
)

// Quantity fails if a text is a resource quantity, such as 1e1000000000, with a larger exponent than users need. It ignores texts that
// are no quantities, which fail where they are parsed; space around a quantity is none of it, as in JSON. Call it before a quantity is
// parsed, and so before an object is read into a type with quantities. The CRDs have the same bounds, from tools/crd-quantities.sed.
func Quantity(quantity string) error {
	if err := Length("a quantity", len(quantity), mostQuantityBytes); err != nil {
		return err
	}
	quantity = strings.TrimSpace(quantity)
	i := strings.IndexAny(quantity, "eE")
	if i < 0 {
		return nil
	}
	digits := strings.TrimLeft(strings.TrimLeft(quantity[i+1:], "+-"), "0")
	if strings.Trim(digits, "0123456789") != "" {
		return nil // as in 1Ei
	}
	if exponent, err := strconv.Atoi("0" + digits); err == nil && exponent <= mostExponent {
		return nil
	}
	return &Exceeded{What: fmt.Sprintf("the quantity %s has too large an exponent", text.Quote(quantity)), Limit: fmt.Sprint(mostExponent)}
}
