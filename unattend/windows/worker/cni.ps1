# CNI configurations, and the HNS network if the lab's kind of network needs one. Settings: files, network.
# Making the network takes the adapter away for some seconds, and with it this connection. So network.ps1 does that in a
# task. If the connection is lost, run this script again: it resumes.
. (Join-Path $PSScriptRoot 'common.ps1')
$settings = Read-Settings @($input)

$record = "$WinlabFolder\cni.json"
$wish = "$WinlabFolder\network.json"
$outcome = "$WinlabFolder\network-state.json"
$task = 'winlab-network'

function Confirm-Network($Network) {
    $type = "$($Network.type)"
    if ($type -notin 'L2Bridge', 'Overlay') { throw "settings.network.type is '$type', not L2Bridge or Overlay." }
    foreach ($field in 'name', 'subnet', 'gateway') {
        if (-not "$($Network.$field)") { throw "settings.network.$field is missing." }
    }
    if ("$($Network.subnet)" -notmatch '^\d+\.\d+\.\d+\.\d+/\d+$') {
        throw "settings.network.subnet is no IPv4 network: '$($Network.subnet)'."
    }
    if ($type -eq 'Overlay' -and [int]$Network.vni -lt 4096) {
        throw 'settings.network.vni must be 4096 or more on Windows.'
    }
    if ($Network.endpoint -and -not ("$($Network.endpoint.name)" -and "$($Network.endpoint.address)")) {
        throw 'settings.network.endpoint must have a name and an address.'
    }
}

function Get-Outcome {
    $text = Get-Text $outcome
    if (-not $text) { return $null }
    return ConvertFrom-Json -InputObject $text
}

# A process of this WinRM shell would end with the shell, because Windows keeps a shell's processes in a job. A task
# does not; and it also runs at each start of Windows, because HNS forgets which endpoints were the node's own
function Start-NetworkTask {
    foreach ($script in 'common.ps1', 'services.ps1', 'network.ps1') {
        $source = Join-Path $PSScriptRoot $script
        Install-File $source "$WinlabFolder\$script" (Get-Sha256 $source) | Out-Null
    }
    $action = New-ScheduledTaskAction -Execute 'powershell.exe' `
        -Argument "-NoProfile -NonInteractive -ExecutionPolicy Bypass -File $WinlabFolder\network.ps1"
    Register-ScheduledTask -TaskName $task -Action $action -Trigger (New-ScheduledTaskTrigger -AtStartup) `
        -Principal (New-ScheduledTaskPrincipal -UserId 'SYSTEM' -LogonType ServiceAccount -RunLevel Highest) `
        -Settings (New-ScheduledTaskSettingsSet -AllowStartIfOnBatteries -DontStopIfGoingOnBatteries `
            -StartWhenAvailable) -Force | Out-Null
    Start-ScheduledTask -TaskName $task
}

function Set-Network($Network) {
    $text = ConvertTo-Json -InputObject $Network -Compress -Depth 4
    $same = (Get-Text $wish) -ceq $text
    $there = @(Get-HnsNetwork | Where-Object { $_.Name -eq "$($Network.name)" }).Count -gt 0
    $done = Get-Outcome
    if ($same -and $there -and $done -and $done.state -eq 'done') { return $false }
    $running = Get-ScheduledTask -TaskName $task -ErrorAction SilentlyContinue |
        Where-Object { "$($_.State)" -eq 'Running' }
    if (-not ($same -and $running)) {
        Write-Progressing "making the network '$($Network.name)'; the connection may be lost for some seconds"
        Remove-Item -LiteralPath $outcome -Force -ErrorAction SilentlyContinue
        Write-Text $wish $text | Out-Null
        Start-NetworkTask
    }
    for ($try = 0; $try -lt 180; $try++) {
        $done = Get-Outcome
        if ($done -and $done.state -eq 'done') { return $true }
        if ($done) { throw "The network '$($Network.name)' could not be made: $($done.error)" }
        Start-Sleep -Seconds 1
    }
    throw "The network '$($Network.name)' is not made after three minutes; see $WinlabFolder\network.log."
}

Invoke-Step {
    if (-not (Test-Joined)) { throw 'This node has not joined a cluster: join.ps1 comes first.' }
    $files = @{}
    if ($settings.files) { foreach ($name in $settings.files.Keys) { $files[$name] = "$($settings.files[$name])" } }
    foreach ($name in $files.Keys) {
        if ($name -notmatch '^[A-Za-z0-9][A-Za-z0-9._-]*\.(conf|conflist|json)$') {
            throw "'$name' is no name of a CNI configuration."
        }
        try { ConvertFrom-Json -InputObject $files[$name] | Out-Null } catch { throw "'$name' is no JSON." }
    }
    if ($settings.network) { Confirm-Network $settings.network }
    Set-FolderAcl $WinlabFolder $ProgramsFolder
    $changed = $false
    # the network first: the node is Ready as soon as there is a configuration
    if ($settings.network) { $changed = Set-Network $settings.network }
    $before = @()
    $noted = Get-Text $record
    if ($noted) { $before = @((ConvertFrom-Json -InputObject $noted).files) }
    # recorded before anything is written, so that nothing is forgotten
    $all = @(@($before) + @($files.Keys) | Sort-Object -Unique)
    Write-Text $record (ConvertTo-Json -InputObject @{ files = $all } -Compress) | Out-Null
    foreach ($name in $files.Keys) { $changed = (Write-Text "$NetworkFolder\$name" $files[$name]) -or $changed }
    foreach ($name in $before) {
        if (-not $files.ContainsKey($name) -and (Test-Path -LiteralPath "$NetworkFolder\$name")) {
            Remove-Item -LiteralPath "$NetworkFolder\$name" -Force
            $changed = $true
        }
    }
    Write-Text $record (ConvertTo-Json -InputObject @{ files = @($files.Keys) } -Compress) | Out-Null
    return @{ changed = [bool]$changed }
}
