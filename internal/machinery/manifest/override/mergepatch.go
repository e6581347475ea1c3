package override

import "slices"

// mergePatch applies a JSON merge patch (RFC 7386).
func (d *document) mergePatch(patch *value) error {
	if err := d.allowed.steps.Spend(1); err != nil {
		return err
	}
	return d.merge(&d.root, patch)
}

func (d *document) merge(v, patch *value) error {
	if !patch.isObject() {
		*v = *patch
		return nil
	}
	if err := d.allowed.steps.Spend(len(patch.parts.keys) >> 2); err != nil {
		return err
	}
	if !v.isObject() {
		*v = value{parts: &parts{owner: d.owner}}
	}
	p, err := d.own(v)
	if err != nil {
		return err
	}
	for i, key := range patch.parts.keys {
		if err := d.mergeMember(p, key, &patch.parts.values[i]); err != nil {
			return err
		}
	}
	return nil
}

func (d *document) mergeMember(p *parts, key string, patch *value) error {
	at, found := slices.BinarySearch(p.keys, key)
	if patch.isNull() {
		if !found {
			return nil
		}
		return d.dropPart(p, at)
	}
	if found {
		return d.merge(&p.values[at], patch)
	}
	v, err := d.insert(p, key, null)
	if err != nil {
		return err
	}
	return d.merge(v, patch)
}

func (d *document) dropPart(p *parts, at int) error {
	if err := d.move(p, at); err != nil {
		return err
	}
	p.drop(at)
	return nil
}
