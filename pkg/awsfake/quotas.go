package awsfake

import (
	"encoding/json"
	"maps"
)

// quotaService is Service Quotas.
type quotaService struct{ account *Account }

// quotaDefaults are AWS's values by code (AWS General Reference, "Amazon Elastic Compute Cloud endpoints and quotas", and those of Amazon VPC,
// of Amazon EC2 Auto Scaling and of Elastic Load Balancing).
var quotaDefaults = map[string]struct {
	service, name string
	value         float64
}{
	"L-1216C47A": {"ec2", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", 5},
	"L-34B43A08": {"ec2", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", 5},
	"L-DB2E81BA": {"ec2", "Running On-Demand G and VT instances", 0},
	"L-3819A6DF": {"ec2", "All G and VT Spot Instance Requests", 0},
	"L-FB451C26": {"ec2", "Launch templates per Region", 5000},
	"L-0EA8095F": {"vpc", "Inbound or outbound rules per security group", 60},
	"L-2AFB9258": {"vpc", "Security groups per network interface", 5},
	"L-CDE20ADC": {"autoscaling", "Auto Scaling groups per region", 500},
	"L-69A177A2": {"elasticloadbalancing", "Network Load Balancers per Region", 50},
	"L-B22855CB": {"elasticloadbalancing", "Target Groups per Region", 3000},
}

// SetQuota gives the account a value of its own for a quota, by its code.
func (a *Account) SetQuota(code string, value float64) {
	a.locked(func() { a.quotas = withQuota(a.quotas, code, value) })
}

func withQuota(have map[string]float64, code string, value float64) map[string]float64 {
	out := maps.Clone(have)
	if out == nil {
		out = map[string]float64{}
	}
	out[code] = value
	return out
}

// needs of Service Quotas: both calls are about a quota, and are asked for about any.
func (quotaService) needs(c *call) []need {
	return []need{{action: "servicequotas:" + c.Action, arn: "*"}}
}

// serve carries out one call: of a quota that the account has no value of its own for, only AWS's default can be read (API reference,
// GetServiceQuota and GetAWSDefaultServiceQuota).
func (s quotaService) serve(c *call) (any, error) {
	var in struct{ ServiceCode, QuotaCode string }
	if err := json.Unmarshal(c.Body, &in); err != nil {
		return nil, refuse("IllegalArgumentException", "%v", err)
	}
	known, ok := quotaDefaults[in.QuotaCode]
	own, has := s.account.quotas[in.QuotaCode]
	value := known.value
	switch {
	case c.Action != "GetServiceQuota" && c.Action != "GetAWSDefaultServiceQuota":
		return nil, refuse("UnknownOperationException", "awsfake does not model servicequotas:%s", c.Action)
	case !ok || known.service != in.ServiceCode, c.Action == "GetServiceQuota" && !has:
		return nil, refuse("NoSuchResourceException", "The request failed because the specified resource does not exist: %s of %s", in.QuotaCode, in.ServiceCode)
	case c.Action == "GetServiceQuota":
		value = own
	}
	return map[string]any{"Quota": map[string]any{"ServiceCode": in.ServiceCode, "QuotaCode": in.QuotaCode, "QuotaName": known.name, "Value": value, "Adjustable": true}}, nil
}
