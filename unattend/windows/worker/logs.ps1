# The last lines of what matters when a node does not become Ready. Settings: lines. Changes nothing.
. (Join-Path $PSScriptRoot 'common.ps1')
$settings = Read-Settings @($input)

Invoke-Step {
    $count = 60
    if ($settings.lines) { $count = [int]$settings.lines }
    if ($count -lt 1 -or $count -gt 10000) { throw "settings.lines is $count, not between 1 and 10000." }
    $files = @{
        'kubelet' = 'C:\var\log\kubelet\kubelet.log'
        'containerd' = $ContainerdLog
        'kubeadm' = $KubeadmLog
        'kube-proxy' = 'C:\var\log\kube-proxy\kube-proxy.log'
        'network' = "$WinlabFolder\network.log"
    }
    $logs = @{}
    foreach ($name in $files.Keys) {
        $lines = @()
        if (Test-Path -LiteralPath $files[$name]) {
            $lines = @(Get-Content -LiteralPath $files[$name] -Encoding UTF8 -Tail $count)
        }
        $logs[$name] = $lines -join "`n"
    }
    $logs['services'] = @('containerd', 'kubelet', 'kube-proxy', 'hns' |
        ForEach-Object { "${_}: $(Get-ServiceState $_)" }) -join "`n"
    return @{ logs = $logs }
}
