package awsfake

import "encoding/xml"

// describeConfigurations answers that there are no launch configurations: the account cannot make any, as no account
// can that was opened after 2023 ("Migrate your Auto Scaling groups to launch templates").
func (s *AutoScaling) describeConfigurations(params) (any, error) {
	return struct {
		XMLName xml.Name `xml:"DescribeLaunchConfigurationsResult"`
		List    struct{} `xml:"LaunchConfigurations"`
	}{}, nil
}
