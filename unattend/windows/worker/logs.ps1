# The last lines of the logs that help if a node does not become Ready. Settings: lines; everything, which adds the
# network, containers, events and more, for someone who can't look at the node. Changes nothing.
. (Join-Path $PSScriptRoot 'common.ps1')
$settings = Read-Settings @($input)

$MostText = 200KB # of one log: a line may be long
$MostPods = 20
$Services = 'containerd', 'kubelet', 'kube-proxy', 'hns'

function Get-Tail([string]$Path, [int]$Count) {
    if (-not (Test-Path -LiteralPath $Path)) { return @() }
    return @(Get-Content -LiteralPath $Path -Encoding UTF8 -Tail $Count)
}

function Get-Events([string]$Log, [int]$Count) {
    Get-WinEvent -FilterHashtable @{ LogName = $Log; Level = 1, 2, 3 } -MaxEvents $Count | ForEach-Object {
        $when = $_.TimeCreated.ToUniversalTime().ToString('s')
        "${when}Z $($_.ProviderName) $($_.Id) $($_.Message -replace '\s+', ' ')"
    }
}

# How to read each of the additional logs, in a scope that has $count
$Ctr = "$ContainerdFolder\ctr.exe"
$Others = @{
    'hns-networks' = { ConvertTo-Json -Depth 8 -InputObject @(Get-HnsNetwork) }
    'hns-endpoints' = { ConvertTo-Json -Depth 8 -InputObject @(Get-HnsEndpoint) }
    'hns-policies' = { ConvertTo-Json -Depth 8 -InputObject @(Get-HnsPolicyList) }
    'containers' = { Invoke-Native $Ctr @('-n', 'k8s.io', 'containers', 'ls') }
    'tasks' = { Invoke-Native $Ctr @('-n', 'k8s.io', 'tasks', 'ls') }
    'images' = { Invoke-Native $Ctr @('-n', 'k8s.io', 'images', 'ls') }
    'addresses' = { Invoke-Native 'ipconfig.exe' @('/all') }
    'routes' = { Invoke-Native 'route.exe' @('print') }
    'commands' = { foreach ($name in $Services) { "${name}: $(Get-ServiceCommand $name)" } }
    'hotfixes' = { Get-HotFix | ForEach-Object { "$($_.HotFixID) $($_.Description) $($_.InstalledOn)" } }
    'events-system' = { Get-Events 'System' $count }
    'events-application' = { Get-Events 'Application' $count }
    'events-hns' = { Get-Events 'Microsoft-Windows-Host-Network-Service-Admin' $count }
    'events-vmswitch' = { Get-Events 'Microsoft-Windows-Hyper-V-VmSwitch-Operational' $count }
    'events-compute' = { Get-Events 'Microsoft-Windows-Hyper-V-Compute-Admin' $count }
}

# The scripts' own logs, and Setup's beside them; the network's configurations, but not the keys beside them; pods' logs
function Get-OtherFiles {
    $ErrorActionPreference = 'SilentlyContinue' # a folder may not exist yet
    Get-ChildItem -Path "$WinlabFolder\*.log", "$LogFolder\*.log", "$NetworkFolder\*.conf*" -File
    Get-ChildItem -Path 'C:\var\log\pods\*\*\*.log' -File |
        Sort-Object -Property LastWriteTime -Descending | Select-Object -First $MostPods
}

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
    foreach ($name in $files.Keys) { $logs[$name] = (Get-Tail $files[$name] $count) -join "`n" }
    $logs['services'] = @($Services | ForEach-Object { "${_}: $(Get-ServiceState $_)" }) -join "`n"
    if ($settings.everything) {
        foreach ($name in $Others.Keys) {
            # if one can't be read, the others are still returned
            $logs[$name] = try { (& $Others[$name]) -join "`n" } catch { "$($_.Exception.Message)" }
        }
        foreach ($file in Get-OtherFiles) {
            # for example, C:\winlab\logs\join.log becomes winlab-logs-join
            $name = $file.FullName.Substring(3) -replace '[^\w.-]', '-' -replace '\.log$'
            $logs[$name] = (Get-Tail $file.FullName $count) -join "`n"
        }
        foreach ($name in @($logs.Keys)) {
            $logs[$name] = $logs[$name].Substring([Math]::Max(0, $logs[$name].Length - $MostText))
        }
    }
    return @{ logs = $logs }
}
