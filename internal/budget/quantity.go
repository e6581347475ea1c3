package budget

import (
	"fmt"
	"strconv"
	"strings"
)

// mostExponent is the largest power of ten of a quantity: above it, no two quantities are compared in less than seconds, because both are
// written out.
const mostExponent = 100

// Quantity fails if a text is a resource quantity, such as 1e1000000000, whose exponent is larger than any that people write. What is no
// quantity it leaves to whoever parses it.
func Quantity(text string) error {
	if err := Length("a quantity", len(text), 1<<10); err != nil {
		return err
	}
	i := strings.IndexAny(text, "eE")
	if i < 0 {
		return nil
	}
	digits := strings.TrimLeft(strings.TrimLeft(text[i+1:], "+-"), "0")
	if strings.Trim(digits, "0123456789") != "" {
		return nil // as in 1Ei
	}
	if exponent, err := strconv.Atoi("0" + digits); err == nil && exponent <= mostExponent {
		return nil
	}
	return &Exceeded{What: fmt.Sprintf("the quantity %s has too large an exponent", Quote(text)), Limit: fmt.Sprint(mostExponent)}
}
